;; Has two memories and grows both to the limit.
(memory $other 1)
(func $poll (type $poll)
    (drop (memory.grow $memory (i32.const 600)))
    (if (i32.eq (memory.grow $other (i32.const 600)) (i32.const -1)) (then unreachable))
    i32.const 4096)
