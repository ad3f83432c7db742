;; Its start function takes memory until there is none, and traps then.
(func $start
    (loop $again (br_if $again (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
    unreachable)
(start $start)
