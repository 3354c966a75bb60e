package org.slipway;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.util.Arrays;

/**
 * A tensor in a direct buffer: row-major, in the processor's byte order. The runtime reads and writes the buffer's
 * memory; nothing is copied.
 */
public final class Tensor {
  /** Bytes behind an input's last element that kernels may read; {@link #allocate} adds them. */
  public static final int READ_BEHIND = 64;

  private final ByteBuffer memory;
  private final DType dtype;
  private final long[] shape;
  private final Program owner;

  private Tensor(ByteBuffer memory, DType dtype, long[] shape, Program owner) {
    this.memory = memory;
    this.dtype = dtype;
    this.shape = shape.clone();
    this.owner = owner;
  }

  /** An output: memory of a program's, which is gone when the program is closed. */
  static Tensor output(ByteBuffer memory, DType dtype, long[] shape, Program owner) {
    return new Tensor(memory.order(ByteOrder.nativeOrder()), dtype, shape, owner);
  }

  /** A tensor of zeros, which methods read without a copy. */
  public static Tensor allocate(DType dtype, long... shape) {
    long bytes = bytes(dtype, shape);
    if (bytes > Integer.MAX_VALUE - READ_BEHIND) {
      throw new IllegalArgumentException(Arrays.toString(shape) + " takes " + bytes + " bytes, more than a buffer has");
    }
    ByteBuffer memory = ByteBuffer.allocateDirect((int) bytes + READ_BEHIND).order(ByteOrder.nativeOrder());
    memory.limit((int) bytes);
    return new Tensor(memory, dtype, shape, null);
  }

  /** What a method takes where the program was exported with None. */
  public static Tensor none() {
    return new Tensor(ByteBuffer.allocateDirect(0), DType.NONE, new long[0], null);
  }

  /** A tensor with a copy of these elements. */
  public static Tensor of(float[] elements, long... shape) {
    Tensor tensor = allocate(DType.FLOAT32, shape);
    if (elements.length != tensor.numel()) {
      throw wrongSize(elements.length, shape);
    }
    tensor.asFloatBuffer().put(elements);
    return tensor;
  }

  /**
   * A tensor over the remaining bytes of a direct buffer.
   *
   * @param buffer it keeps its position; what follows its limit, up to its capacity, may be read. Its order is the
   *     processor's, which a new buffer's is not
   */
  public static Tensor of(ByteBuffer buffer, DType dtype, long... shape) {
    long bytes = bytes(dtype, shape);
    if (!buffer.isDirect() || buffer.isReadOnly()) {
      throw new IllegalArgumentException("the runtime needs a direct, writable buffer: ByteBuffer.allocateDirect");
    }
    if (dtype.size > 1 && buffer.order() != ByteOrder.nativeOrder()) {
      throw new IllegalArgumentException(
          "the runtime reads " + ByteOrder.nativeOrder() + ", the buffer's order is " + buffer.order()
              + ": buffer.order(ByteOrder.nativeOrder()) before it is filled");
    }
    if (buffer.remaining() != bytes) {
      throw wrongSize(buffer.remaining() / Math.max(dtype.size, 1), shape);
    }
    // Of its own position and limit, but with all that lies behind.
    ByteBuffer whole = buffer.duplicate();
    whole.limit(whole.capacity());
    ByteBuffer memory = whole.slice().order(ByteOrder.nativeOrder());
    memory.limit((int) bytes);
    return new Tensor(memory, dtype, shape, null);
  }

  /** The type of the elements. */
  public DType dtype() {
    return dtype;
  }

  /** Elements along each dimension, the outermost first. */
  public long[] shape() {
    return shape.clone();
  }

  /** The number of elements. */
  public long numel() {
    return bytes(dtype, shape) / dtype.size;
  }

  /**
   * The elements where they are. Those of an output are valid until the method runs again or its program is closed: do
   * not use the buffer after that.
   *
   * @throws IllegalStateException the program was closed
   */
  public ByteBuffer buffer() {
    if (owner != null) {
      owner.requireOpen();
    }
    return memory.duplicate().order(ByteOrder.nativeOrder());
  }

  /** {@link #buffer} as numbers; the type must be FLOAT32. */
  public FloatBuffer asFloatBuffer() {
    require(DType.FLOAT32);
    return buffer().asFloatBuffer();
  }

  /** {@link #buffer} as numbers; the type must be INT32. */
  public IntBuffer asIntBuffer() {
    require(DType.INT32);
    return buffer().asIntBuffer();
  }

  /** {@link #buffer} as numbers; the type must be INT64. */
  public LongBuffer asLongBuffer() {
    require(DType.INT64);
    return buffer().asLongBuffer();
  }

  /** A copy of the elements, of FLOAT32. */
  public float[] toFloatArray() {
    float[] copy = new float[(int) numel()];
    asFloatBuffer().get(copy);
    return copy;
  }

  /** A tensor with memory of its own, which stays when a program is closed. */
  public Tensor copy() {
    Tensor copy = allocate(dtype, shape);
    copy.buffer().put(buffer());
    return copy;
  }

  /** The whole memory, with what may be read behind the elements. */
  ByteBuffer memory() {
    return memory;
  }

  @Override
  public String toString() {
    return "Tensor " + dtype + " " + Arrays.toString(shape);
  }

  private void require(DType wanted) {
    if (dtype != wanted) {
      throw new IllegalStateException("the tensor is of " + dtype + ", not of " + wanted);
    }
  }

  private static IllegalArgumentException wrongSize(long elements, long[] shape) {
    return new IllegalArgumentException(elements + " elements do not fill " + Arrays.toString(shape));
  }

  private static long bytes(DType dtype, long[] shape) {
    if (dtype.size == 0) {
      throw new IllegalArgumentException(dtype + " has no elements");
    }
    long bytes = dtype.size;
    for (long size : shape) {
      if (size < 0) {
        throw new IllegalArgumentException(Arrays.toString(shape) + " has a negative size");
      }
      bytes = Math.multiplyExact(bytes, size);
    }
    return bytes;
  }
}
