package org.slipway;

import java.util.ArrayList;
import java.util.List;

/** How to load a program. */
public final class Options {
  private Pool pool;
  private String dataPath;
  private String weightsCache;
  private int maxJumps;
  private final List<String> methods = new ArrayList<>();

  /** Computes on these threads. Default: the program's own pool. */
  public Options pool(Pool shared) {
    pool = shared;
    return this;
  }

  /** A file of weights (.ptd) that was exported with the program. */
  public Options dataPath(String path) {
    dataPath = path;
    return this;
  }

  /** A file that keeps packed weights for the next load; only for programs that are loaded from a path. */
  public Options weightsCache(String path) {
    weightsCache = path;
    return this;
  }

  /** Makes this method ready; may be called several times. Default: all methods of the program. */
  public Options method(String name) {
    methods.add(name);
    return this;
  }

  /** Rounds of loops that one execution may take. 0, the default: ten million. */
  public Options maxJumps(int jumps) {
    if (jumps < 0) {
      throw new IllegalArgumentException("a method cannot take " + jumps + " rounds");
    }
    maxJumps = jumps;
    return this;
  }

  /** A native copy, which the caller frees. */
  long create() {
    byte[][] names = new byte[methods.size()][];
    for (int i = 0; i < names.length; i++) {
      names[i] = Native.utf8(methods.get(i));
    }
    byte[] data = Native.utf8(dataPath);
    byte[] cache = Native.utf8(weightsCache);
    if (pool == null) {
      return Native.createOptions(0, data, cache, names, maxJumps);
    }
    synchronized (pool) {
      return Native.createOptions(pool.handle(), data, cache, names, maxJumps);
    }
  }
}
