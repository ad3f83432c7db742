;; Copies 32 MiB back and forth in an endless loop.
(func $poll (type $poll)
    (drop (memory.grow (i32.const 1015)))
    (loop $again
        (memory.copy (i32.const 131072) (i32.const 33685504) (i32.const 33000000))
        (memory.copy (i32.const 33685504) (i32.const 131072) (i32.const 33000000))
        (br $again))
    i32.const 4096)
