package org.slipway;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/**
 * A program that ExecuTorch exported (.pte), loaded.
 *
 * <p>Threads: calls on one program and its methods take turns. Two programs run at the same time in two threads, also
 * when they share a {@link Pool}.
 */
public final class Program implements AutoCloseable {
  private final List<Method> methods = new ArrayList<>();
  private final ByteBuffer source; // read by the program as long as it lives
  private volatile long handle; // written under this object's lock

  private Program(long handle, ByteBuffer source) {
    this.handle = handle;
    this.source = source;
    for (long method : Native.methods(handle)) {
      methods.add(new Method(this, method, new String(Native.methodName(method), StandardCharsets.UTF_8)));
    }
  }

  /** The library's version, "0.1.0". */
  public static String version() {
    return new String(Native.version(), StandardCharsets.UTF_8);
  }

  /** {@link #load(String, Options)} with the defaults. */
  public static Program load(String path) {
    return load(path, new Options());
  }

  /**
   * Loads a program from a file, which is mapped into memory: replace it by a rename while the program lives.
   *
   * @throws SlipwayException the file cannot be read or is damaged, or the library lacks what the program needs
   */
  public static Program load(String path, Options options) {
    return load(Native.utf8(path), null, 0, 0, -1, options);
  }

  /**
   * Loads a program from the remaining bytes of a direct buffer. They are not copied if their address is a multiple of
   * 64: do not change them while the program lives.
   *
   * @throws SlipwayException as {@link #load(String, Options)}
   */
  public static Program load(ByteBuffer data, Options options) {
    if (!data.isDirect()) {
      throw new IllegalArgumentException("the runtime needs a direct buffer: ByteBuffer.allocateDirect, or a mapping");
    }
    return load(null, data, 0, data.position(), data.remaining(), options);
  }

  /**
   * Loads a program from a part of an open file, as an asset of an Android app is: getFd() of
   * AssetFileDescriptor.getParcelFileDescriptor(), getStartOffset(), getLength(). Keep .pte files uncompressed:
   * {@code androidResources { noCompress += "pte" }}.
   *
   * @param descriptor may be closed afterwards
   * @param size in bytes; 0: up to the file's end
   * @throws SlipwayException as {@link #load(String, Options)}
   */
  public static Program load(int descriptor, long offset, long size, Options options) {
    if (offset < 0 || size < 0) {
      throw new IllegalArgumentException("a part of a file cannot begin at " + offset + " or have " + size + " bytes");
    }
    return load(null, null, descriptor, offset, size, options);
  }

  private static Program load(
      byte[] path, ByteBuffer data, int descriptor, long offset, long size, Options options) {
    long created = options.create();
    try {
      return new Program(Native.load(path, data, descriptor, offset, size, created), data);
    } finally {
      Native.freeOptions(created);
    }
  }

  /** The methods that are ready, in the order of the options or of the file. */
  public List<Method> methods() {
    return Collections.unmodifiableList(methods);
  }

  /**
   * The method of that name.
   *
   * @throws SlipwayException it is not ready or does not exist
   */
  public Method method(String name) {
    StringBuilder names = new StringBuilder(); // String.join is not in Android 7
    for (Method method : methods) {
      if (method.name().equals(name)) {
        return method;
      }
      names.append(names.length() == 0 ? "" : ", ").append(method.name());
    }
    throw new SlipwayException(
        SlipwayException.Code.USAGE,
        "Method " + name + " is not ready.",
        "these were loaded: " + names);
  }

  /** {@link Method#forward} of the method "forward". */
  public Tensor[] forward(Tensor... inputs) {
    return method("forward").forward(inputs);
  }

  /**
   * Writes packed weights to the file of {@link Options#weightsCache}; does nothing if the file has all of them.
   *
   * @throws SlipwayException the options do not name a file, or it cannot be written
   */
  public synchronized void keepWeights() {
    Native.keepWeights(handle());
  }

  /** How many blocks of packed weights this load found in that file. */
  public synchronized long weightsFound() {
    return Native.weightsFound(handle());
  }

  /**
   * Says whether the program can still be used.
   *
   * @throws IllegalStateException it was closed
   */
  void requireOpen() {
    if (handle == 0) {
      throw new IllegalStateException("the program was closed, and its methods and outputs with it: use Tensor.copy");
    }
  }

  /** The native handle. Hold this object's lock while it is used. */
  long handle() {
    requireOpen();
    return handle;
  }

  boolean isOpen() {
    return handle != 0;
  }

  /** Frees the program, its methods and the memory of its outputs. */
  @Override
  public synchronized void close() {
    if (handle != 0) {
      Native.freeProgram(handle);
      handle = 0;
    }
  }
}
