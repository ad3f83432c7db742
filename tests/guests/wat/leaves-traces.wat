;; Writes a mark over its whole memory, which a later poll must not see.
(func $poll (type $poll)
    (drop (memory.grow (i32.const 1015)))
    (memory.fill (i32.const 131072) (i32.const 0xAB) (i32.const 66000000))
    i32.const 4096)
