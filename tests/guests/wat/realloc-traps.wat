;; Has no memory for what it is told.
(func $realloc (type $realloc) unreachable)
