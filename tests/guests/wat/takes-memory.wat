;; Grows its memory to the limit and continues to request more.
(func $poll (type $poll)
    (loop $again (br_if $again (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
    unreachable)
