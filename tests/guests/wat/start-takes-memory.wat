;; The start function allocates memory until the limit, then traps.
(func $start
    (loop $again (br_if $again (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
    unreachable)
(start $start)
