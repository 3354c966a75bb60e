package org.slipway;

import java.util.Arrays;

/** What a method declares of an input or output. */
public final class TensorSpec {
  /** What it is. */
  public enum Kind {
    /** Something that only the library itself can read. */
    OTHER,
    TENSOR,
    /** A number: a tensor without dimensions, of INT64, FLOAT64 or BOOL. */
    NUMBER
  }

  /** How far sizes may differ from the declared ones. */
  public enum Dynamism {
    STATIC,
    /** Each size may be smaller. */
    BOUNDED,
    UNBOUNDED
  }

  private static final int HEAD = 3;
  private final Kind kind;
  private final DType dtype;
  private final Dynamism dynamism;
  private final long[] shape;

  /** From the numbers of slipway_spec: kind, type, dynamism, then the sizes. */
  TensorSpec(long[] numbers) {
    kind = Kind.values()[(int) numbers[0]];
    dtype = DType.of((int) numbers[1]);
    dynamism = Dynamism.values()[(int) numbers[2]];
    shape = Arrays.copyOfRange(numbers, HEAD, numbers.length);
  }

  /** What it is. */
  public Kind kind() {
    return kind;
  }

  /** The type of the elements. */
  public DType dtype() {
    return dtype;
  }

  /** How far sizes may differ from the declared ones. */
  public Dynamism dynamism() {
    return dynamism;
  }

  /** Elements along each dimension, the outermost first; the largest ones for BOUNDED. */
  public long[] shape() {
    return shape.clone();
  }

  @Override
  public String toString() {
    return kind + " " + dtype + " " + Arrays.toString(shape) + " " + dynamism;
  }
}
