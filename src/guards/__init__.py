"""Guards against files of strangers, by one rule: what such a file can unfold to, search or run without end is read in
a process with limits, before it is read here or in its place.

``bounds`` refuses tables of tasks, ``trial`` tries tables and tokenizers, and ``prompt_writer`` renders chat templates.
"""
