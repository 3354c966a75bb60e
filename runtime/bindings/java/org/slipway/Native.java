package org.slipway;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/** The C API of slipway.h. Handles are addresses; texts are UTF-8. */
final class Native {
  /** SLIPWAY_ABI_VERSION that these classes were written for. */
  static final int ABI_VERSION = 1;

  /** A type, a rank, and the sizes of SLIPWAY_MAX_DIMS dimensions. */
  static final int OUTPUT_NUMBERS = 2 + 16;

  static {
    System.loadLibrary("slipway_jni");
    if (abiVersion() != ABI_VERSION) {
      throw new UnsatisfiedLinkError("libslipway has the interface " + abiVersion() + ", not " + ABI_VERSION);
    }
  }

  private Native() {}

  /** The bytes of a text; null for null. */
  static byte[] utf8(String text) {
    return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
  }

  static native int abiVersion();

  static native byte[] version();

  static native long createPool(int threads);

  static native int poolThreads(long pool);

  static native void freePool(long pool);

  static native long createOptions(long pool, byte[] dataPath, byte[] weightsCache, byte[][] methods, int maxJumps);

  static native void freeOptions(long options);

  /** From {@code data}; else from the descriptor, or with a size below 0 from the path. */
  static native long load(byte[] path, ByteBuffer data, int descriptor, long offset, long size, long options);

  static native void freeProgram(long program);

  static native long[] methods(long program);

  static native void keepWeights(long program);

  static native long weightsFound(long program);

  static native byte[] methodName(long method);

  static native int count(long method, boolean ofOutputs);

  static native long[] spec(long method, boolean ofOutput, int index);

  static native void setInput(long method, int index, ByteBuffer data, int dtype, long[] shape);

  static native boolean inputCopied(long method, int index);

  static native void execute(long method);

  /** An output's memory; its type, rank and sizes go to {@code numbers}, which has room for {@link #OUTPUT_NUMBERS}. */
  static native ByteBuffer output(long method, int index, long[] numbers);

  static native long createSession(long program, byte[] method);

  static native void freeSession(long session);

  static native void feed(long session, long[] ids);

  static native void feedEmbeddings(long session, float[] rows, int count);

  static native float[] logits(long session);

  static native void setSampling(long session, double temperature, int topK, double topP, long seed);

  static native long sample(long session);

  static native long[] stops(long session);

  /** Its position, its context or its width. */
  static native long sessionNumber(long session, int index);

  static native void truncate(long session, long position);

  /** To a file, or without a path as the result. */
  static native byte[] saveText(long session, byte[] path);

  /** From {@code saved}, or without it from a file. */
  static native void restoreText(long session, byte[] path, byte[] saved);
}
