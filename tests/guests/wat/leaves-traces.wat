;; Writes its mark over all the memory it may have, for whoever comes next.
(func $poll (type $poll)
    (drop (memory.grow (i32.const 1015)))
    (memory.fill (i32.const 131072) (i32.const 0xAB) (i32.const 66000000))
    i32.const 4096)
