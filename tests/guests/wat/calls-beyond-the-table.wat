;; Calls an entry that its table does not have.
(table $functions 4 funcref)
(func $poll (type $poll) (call_indirect $functions (type $describe) (i32.const 1000)))
