;; The allocator traps.
(func $realloc (type $realloc) unreachable)
