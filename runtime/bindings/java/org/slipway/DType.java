package org.slipway;

/** Types of elements. */
public enum DType {
  /** A type that only the library itself can read. */
  UNKNOWN(0, 0),
  /** One byte: 0 or 1. */
  BOOL(1, 1),
  UINT8(2, 1),
  INT8(3, 1),
  UINT16(4, 2),
  INT16(5, 2),
  UINT32(6, 4),
  INT32(7, 4),
  UINT64(8, 8),
  INT64(9, 8),
  FLOAT16(10, 2),
  BFLOAT16(11, 2),
  FLOAT32(12, 4),
  FLOAT64(13, 8),
  /** No tensor, but None, as Tensor.none makes it. */
  NONE(14, 0),
  /** Real and imaginary part, each FLOAT32. */
  COMPLEX64(15, 8),
  COMPLEX128(16, 16);

  /** The number in slipway.h. */
  public final int number;

  /** Bytes that an element takes. */
  public final int size;

  DType(int number, int size) {
    this.number = number;
    this.size = size;
  }

  static DType of(int number) {
    DType[] all = values();
    return number >= 0 && number < all.length ? all[number] : UNKNOWN;
  }
}
