;; Searches its memory for data of another poll, and traps if it finds any.
(func $poll (type $poll) (local $at i32)
    (drop (memory.grow (i32.const 1015)))
    (local.set $at (i32.const 262144))
    (loop $again
        (if (i64.ne (i64.load (local.get $at)) (i64.const 0)) (then unreachable))
        (local.set $at (i32.add (local.get $at) (i32.const 8)))
        (br_if $again (i32.lt_u (local.get $at) (i32.const 66000000))))
    i32.const 4096)
