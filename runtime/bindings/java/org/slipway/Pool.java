package org.slipway;

/** Threads that programs may share. Programs that use it keep its threads until they are closed. */
public final class Pool implements AutoCloseable {
  private long handle;

  /**
   * Starts threads.
   *
   * @param threads how many compute, the caller's own among them; 0: one for each physical core of this process
   * @throws SlipwayException they cannot be started
   */
  public Pool(int threads) {
    if (threads < 0) {
      throw new IllegalArgumentException("a pool cannot have " + threads + " threads");
    }
    handle = Native.createPool(threads);
  }

  /** How many threads compute. */
  public synchronized int threads() {
    return Native.poolThreads(handle());
  }

  /** The native handle. Hold this object's lock while it is used. */
  long handle() {
    if (handle == 0) {
      throw new IllegalStateException("the pool was closed");
    }
    return handle;
  }

  /** Frees the threads; they end when the last program that uses them is closed. */
  @Override
  public synchronized void close() {
    if (handle != 0) {
      Native.freePool(handle);
      handle = 0;
    }
  }
}
