;; Starts with 96 MiB of memory.
(memory $memory 1536)
