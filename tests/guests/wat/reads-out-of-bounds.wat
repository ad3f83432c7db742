;; Reads outside its memory.
(func $poll (type $poll) (i32.load (i32.const 0x7ffffff0)))
