;; The allocator returns a misaligned pointer.
(func $realloc (type $realloc) (i32.add (i32.const 200001) (i32.const 0)))
