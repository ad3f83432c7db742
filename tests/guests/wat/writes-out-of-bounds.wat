;; Writes outside its memory.
(func $poll (type $poll) (i64.store (i32.const -1) (i64.const 1)) i32.const 4096)
