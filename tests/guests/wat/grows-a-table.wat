;; Grows a table until the limit.
(table $functions 0 funcref)
(func $poll (type $poll)
    (loop $again (br_if $again (i32.ne (table.grow $functions (ref.null func) (i32.const 1000)) (i32.const -1))))
    unreachable)
