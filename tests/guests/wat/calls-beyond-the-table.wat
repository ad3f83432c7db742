;; Calls a table entry beyond the end of the table.
(table $functions 4 funcref)
(func $poll (type $poll) (call_indirect $functions (type $describe) (i32.const 1000)))
