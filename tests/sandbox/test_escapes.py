"""Programs that try to make processes, reach files, networks or other processes."""

import pytest

pytestmark = pytest.mark.sandbox

LIBC = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
CHECK = "\nassert result >= 0, ctypes.get_errno()\nprint('got through')"

FORBIDDEN = {
    "fork bomb": "import os\nwhile True: os.fork()",
    "fork through libc": LIBC + "libc.fork()",
    "vfork": LIBC + "libc.vfork()",
    "raw clone": LIBC + "libc.syscall(56, 17, 0, 0, 0, 0)",
    "exec": "import os\nos.execv('/bin/sh', ['sh', '-c', 'echo 4242'])",
    "socket": "import socket\nsocket.socket()",
    "tcp": "import socket\nsocket.create_connection(('127.0.0.1', PORT), 1)",
    "udp": "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', PORT))",
    "unix socket by path": "import socket\nsocket.socket(socket.AF_UNIX, 2).sendto(b'x', FOLDER + '/socket')",
    "abstract unix socket": "import socket\nsocket.socket(socket.AF_UNIX).connect('\\0dbus')",
    "netlink": "import socket\nsocket.socket(16, 3, 0)",
    "pidfd": "import os\nos.pidfd_open(os.getppid())",
    "ptrace": LIBC + "libc.ptrace(16, VICTIM, 0, 0)",
    "ptrace me": LIBC + "libc.ptrace(0, 0, 0, 0)",
    "process_vm_readv": LIBC + "libc.process_vm_readv(VICTIM, None, 0, None, 0, 0)",
    "io_uring": LIBC + "libc.syscall(425, 4, 0)",
    "bpf": LIBC + "libc.syscall(321, 0, 0, 0)",
    "keyctl": LIBC + "libc.syscall(250, 0, -3, 0)",
    "user namespace": LIBC + "libc.unshare(0x10000000)",
    "chroot": "import os\nos.chroot('/')",
    "mount": LIBC + "libc.mount(b'none', b'/', b'tmpfs', 0, None)",
    "x32 system call": LIBC + "libc.syscall(0x40000000 + 39)",
    "32-bit system call": (
        "import ctypes, mmap\nm = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE, 7)\n"
        "m.write(bytes.fromhex('b814000000cd80c3'))\n"
        "ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()"
    ),
    "shared memory that outlives a process": LIBC + "libc.shmget(1234, 4096, 0o1666)",
    "message queue": LIBC + "libc.msgget(1234, 0o1666)",
}

CRASH = {
    "kill the parent": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)",
    "kill everyone": "import os, signal\nos.kill(-1, signal.SIGKILL)",
    "kill the group": "import os, signal\nos.killpg(0, signal.SIGKILL)",
    "kill a process of the same user": "import os, signal\nos.kill(VICTIM, signal.SIGKILL)",
    "kill the trainer": "import os, signal\nos.kill(TRAINER, signal.SIGTERM)",
    "signal by queue": LIBC + "result = libc.sigqueue(VICTIM, 9, None)" + CHECK,
    "signal through a pipe's owner": (
        "import fcntl, os\nr, w = os.pipe()\nfcntl.fcntl(r, 8, VICTIM)\nfcntl.fcntl(r, 10, 9)\n"
        "fcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC)\nos.write(w, b'x')"
    ),
    "stop itself": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "limit another process": "import resource\nresource.prlimit(VICTIM, resource.RLIMIT_CPU, (0, 0))",
    "raise its own limits": "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    "daemon": "import os\nos.setsid()",
    "another priority": "import os\nos.setpriority(os.PRIO_PROCESS, VICTIM, 19)",
    "another user": "import os\nos.setuid(0)\nos.setgid(0)",
    "read the secret": "print(open(CANARY).read())",
    "read the secret by a detour": "print(open('/usr/lib/../..' + CANARY).read())",
    "list the folder": "import os\nprint(os.listdir(FOLDER))",
    "list the root": "import os\nprint(os.listdir('/'))",
    "read the users": "print(open('/etc/passwd').read())",
    "read the trainer's environment": "print(open('/proc/TRAINER/environ').read())",
    "read the victim's environment": "print(open('/proc/VICTIM/environ').read())",
    "read its parent's environment": "import os\nprint(open(f'/proc/{os.getppid()}/environ').read())",
    "read its parent's memory": "import os\nopen(f'/proc/{os.getppid()}/mem', 'rb').read(1)",
    "write its own memory": "open('/proc/self/mem', 'r+b')",
    "write to its input by reopening it": "open('/proc/self/fd/0', 'r+b', 0).write(b'x')",
    "the trainer's descriptors": "import os\nprint(os.listdir('/proc/TRAINER/fd'))",
    "the secret among the trainer's descriptors": (
        "for fd in range(3, 200):\n    try: print(open(f'/proc/TRAINER/fd/{fd}', closefd=False).read(64))\n"
        "    except OSError: pass\nraise SystemExit(1)"
    ),
    "write beside the secret": "open(FOLDER + '/new', 'w').write('x')",
    "overwrite the secret": "open(CANARY, 'w').write('x')",
    "truncate the secret": "import os\nos.truncate(CANARY, 0)",
    "truncate by opening": "import os\nos.open(CANARY, os.O_RDONLY | os.O_TRUNC)",
    "delete the secret": "import os\nos.unlink(CANARY)",
    "rename the secret": "import os\nos.rename(CANARY, CANARY + '2')",
    "chmod": "import os\nos.chmod(CANARY, 0o777)",
    "utime": "import os\nos.utime(CANARY, (0, 0))",
    "xattr": "import os\nos.setxattr(CANARY, 'user.x', b'x')",
    "folder": "import os\nos.mkdir(FOLDER + '/new')",
    "named pipe": "import os\nos.mkfifo(FOLDER + '/new')",
    "symbolic link": "import os\nos.symlink(CANARY, FOLDER + '/new')",
    "hard link": "import os\nos.link(CANARY, FOLDER + '/new')",
    "write to /tmp": "import tempfile\ntempfile.NamedTemporaryFile()",
    "write to /dev/shm": "open('/dev/shm/troupe', 'w')",
    "shared memory by name": "from multiprocessing.shared_memory import SharedMemory\nSharedMemory('t', True, 64)",
    "overwrite a library": "import json\nopen(json.__file__, 'a').write('x')",
    "overwrite itself": "open(__file__, 'w')",
    "a cached import": "import py_compile, json\nopen(json.__cached__, 'wb').write(b'x')",
    "memory file": "import os\nos.memfd_create('x')",
    "write to a library by mapping it": (
        "import json, mmap\nmmap.mmap(open(json.__file__, 'rb').fileno(), 0, access=mmap.ACCESS_WRITE)[0] = 0"
    ),
    "let itself be traced": LIBC + "result = libc.prctl(4, 1, 0, 0, 0)" + CHECK,
    "outlive its parent's end": LIBC + "result = libc.prctl(1, 0, 0, 0, 0)" + CHECK,
    "adopt a thread's priority": "import os\nos.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))",
    "pass a descriptor on": "import socket\na, b = socket.socketpair()\nsocket.send_fds(a, [b'x'], [1])",
    "grow its input": "import os\nos.write(0, b'x')",
    "terminal injection": "import fcntl\nfcntl.ioctl(0, 0x5412, b'x')",
    "disk": "import os\nos.posix_fallocate(os.open('/dev/sda', os.O_WRONLY), 0, 1 << 30)",
    "address through a socket pair": (
        "import socket\na, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\na.sendto(b'x', FOLDER + '/socket')"
    ),
    "message through a socket pair": (
        "import socket\na, b = socket.socketpair()\na.sendmsg([b'x'], [], 0, FOLDER + '/socket')"
    ),
    "an installed package that was not imported": "import torch",
    "the sandbox's own source": "import guest.wire as w\nopen(w.__file__).read()",
    "perf through the file system": "open('/sys/kernel/mm/transparent_hugepage/enabled').read()",
}

HARMLESS = {
    "clone3 does not exist": LIBC + "print(libc.syscall(435, 0, 0))",
    "its environment is empty": "import os\nassert not os.environ\nprint(open('/dev/null').read())",
    "no other descriptors": (
        "import os\nopened = []\nfor fd in range(3, 4096):\n    try: os.fstat(fd); opened.append(fd)\n"
        "    except OSError: pass\nassert not opened, opened"
    ),
    "no capabilities": (
        LIBC + "data = (ctypes.c_uint32 * 6)()\nheader = (ctypes.c_uint32 * 2)(0x20080522, 0)\n"
        "result = libc.capget(header, data)\nassert not any(data)"
    ),
    "threads": "import threading\nt = threading.Thread(target=print, args=(1,))\nt.start()\nt.join()",
    "asyncio": "import asyncio\nasyncio.run(asyncio.sleep(0.01))",
    "devnull": "import os\nprint(1, file=open(os.devnull, 'w'))",
    "late imports": "import sqlite3, decimal, email.message, xml.dom.minidom, unittest, zoneinfo\nprint(1)",
    "random bytes": "import os, secrets\nprint(len(os.urandom(4)), secrets.token_hex(1))",
    "exit": "exit()",
}

SHELLS = {
    "subprocess": "import subprocess\nsubprocess.run(['echo', '4242'])",
    "os.system": "import os\nassert os.system('echo 4242') == 0",
    "multiprocessing": "import multiprocessing as m\nm.Process(target=print, args=(4242,)).start()",
}


@pytest.mark.parametrize("name", FORBIDDEN)
async def test_killed_by_the_kernel(attack, name: str) -> None:
    await attack(FORBIDDEN[name], "forbidden")


@pytest.mark.parametrize("name", CRASH)
async def test_refused(attack, name: str) -> None:
    result = await attack(CRASH[name], "crash")
    assert result.exit_code == 1
    assert not result.stdout


@pytest.mark.parametrize("name", SHELLS)
async def test_no_command_runs(attack, name: str) -> None:
    await attack(SHELLS[name], "forbidden", "crash")


@pytest.mark.parametrize("name", HARMLESS)
async def test_harmless(attack, name: str) -> None:
    await attack(HARMLESS[name], "ok")
