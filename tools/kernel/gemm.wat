;; The matrix product of the widgets' engine: C = A B, in float32.
;;
;; C is made in tiles of 4 rows and 8 columns. A tile's 32 sums stay in eight registers
;; of four numbers each while k runs: per step two loads from a row of B and four
;; numbers of A, each against both loads. So each number that comes from memory is used
;; four or eight times, and nothing is stored before a sum is complete.
;;
;; m, n and k are at least 1, m a multiple of 4 and n of 8: whoever calls pads. Places
;; and distances are in bytes. A has a distance from row to row and one from column to
;; column, so a transposed A is the same bytes with the two exchanged; the columns of B
;; and of C lie side by side. C overlaps neither A nor B.
(module
  (import "page" "memory" (memory 1))
  (func (export "gemm")
    (param $m i32) (param $n i32) (param $k i32)
    (param $a i32) (param $a_row i32) (param $a_column i32)
    (param $b i32) (param $b_row i32)
    (param $c i32) (param $c_row i32)
    (local $i i32) (local $j i32) (local $p i32)
    (local $a_row_2 i32) (local $a_row_3 i32)
    (local $from_a i32) (local $from_b i32) (local $to i32)
    (local $x v128) (local $left v128) (local $right v128)
    (local $left_0 v128) (local $left_1 v128) (local $left_2 v128) (local $left_3 v128)
    (local $right_0 v128) (local $right_1 v128)
    (local $right_2 v128) (local $right_3 v128)

    (local.set $a_row_2 (i32.mul (local.get $a_row) (i32.const 2)))
    (local.set $a_row_3 (i32.mul (local.get $a_row) (i32.const 3)))
    (loop $rows
      (local.set $j (i32.const 0))
      (loop $columns
        (local.set $left_0 (v128.const i32x4 0 0 0 0))
        (local.set $left_1 (v128.const i32x4 0 0 0 0))
        (local.set $left_2 (v128.const i32x4 0 0 0 0))
        (local.set $left_3 (v128.const i32x4 0 0 0 0))
        (local.set $right_0 (v128.const i32x4 0 0 0 0))
        (local.set $right_1 (v128.const i32x4 0 0 0 0))
        (local.set $right_2 (v128.const i32x4 0 0 0 0))
        (local.set $right_3 (v128.const i32x4 0 0 0 0))
        (local.set $from_a (local.get $a))
        (local.set $from_b
          (i32.add (local.get $b) (i32.mul (local.get $j) (i32.const 4))))
        (local.set $p (local.get $k))
        (loop $sum
          (local.set $left (v128.load (local.get $from_b)))
          (local.set $right (v128.load offset=16 (local.get $from_b)))

          (local.set $x (v128.load32_splat (local.get $from_a)))
          (local.set $left_0
            (f32x4.add (local.get $left_0)
              (f32x4.mul (local.get $x) (local.get $left))))
          (local.set $right_0
            (f32x4.add (local.get $right_0)
              (f32x4.mul (local.get $x) (local.get $right))))

          (local.set $x
            (v128.load32_splat (i32.add (local.get $from_a) (local.get $a_row))))
          (local.set $left_1
            (f32x4.add (local.get $left_1)
              (f32x4.mul (local.get $x) (local.get $left))))
          (local.set $right_1
            (f32x4.add (local.get $right_1)
              (f32x4.mul (local.get $x) (local.get $right))))

          (local.set $x
            (v128.load32_splat (i32.add (local.get $from_a) (local.get $a_row_2))))
          (local.set $left_2
            (f32x4.add (local.get $left_2)
              (f32x4.mul (local.get $x) (local.get $left))))
          (local.set $right_2
            (f32x4.add (local.get $right_2)
              (f32x4.mul (local.get $x) (local.get $right))))

          (local.set $x
            (v128.load32_splat (i32.add (local.get $from_a) (local.get $a_row_3))))
          (local.set $left_3
            (f32x4.add (local.get $left_3)
              (f32x4.mul (local.get $x) (local.get $left))))
          (local.set $right_3
            (f32x4.add (local.get $right_3)
              (f32x4.mul (local.get $x) (local.get $right))))

          (local.set $from_a (i32.add (local.get $from_a) (local.get $a_column)))
          (local.set $from_b (i32.add (local.get $from_b) (local.get $b_row)))
          (br_if $sum
            (local.tee $p (i32.sub (local.get $p) (i32.const 1)))))

        (local.set $to
          (i32.add (local.get $c) (i32.mul (local.get $j) (i32.const 4))))
        (v128.store (local.get $to) (local.get $left_0))
        (v128.store offset=16 (local.get $to) (local.get $right_0))
        (local.set $to (i32.add (local.get $to) (local.get $c_row)))
        (v128.store (local.get $to) (local.get $left_1))
        (v128.store offset=16 (local.get $to) (local.get $right_1))
        (local.set $to (i32.add (local.get $to) (local.get $c_row)))
        (v128.store (local.get $to) (local.get $left_2))
        (v128.store offset=16 (local.get $to) (local.get $right_2))
        (local.set $to (i32.add (local.get $to) (local.get $c_row)))
        (v128.store (local.get $to) (local.get $left_3))
        (v128.store offset=16 (local.get $to) (local.get $right_3))

        (br_if $columns
          (i32.lt_u
            (local.tee $j (i32.add (local.get $j) (i32.const 8)))
            (local.get $n))))

      (local.set $a
        (i32.add (local.get $a) (i32.mul (local.get $a_row) (i32.const 4))))
      (local.set $c
        (i32.add (local.get $c) (i32.mul (local.get $c_row) (i32.const 4))))
      (br_if $rows
        (i32.lt_u
          (local.tee $i (i32.add (local.get $i) (i32.const 4)))
          (local.get $m))))))
