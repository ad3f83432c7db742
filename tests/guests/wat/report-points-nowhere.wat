;; Its answer lies outside of its memory.
(func $poll (type $poll) i32.const 0x7ffffff0)
