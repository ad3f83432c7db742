;; Fills its whole memory in an endless loop. Each fill is one instruction.
(func $poll (type $poll)
    (drop (memory.grow (i32.const 1000)))
    (loop $again
        (memory.fill (i32.const 131072) (i32.const 7) (i32.sub (i32.mul (memory.size) (i32.const 65536)) (i32.const 131072)))
        (br $again))
    i32.const 4096)
