package org.slipway;

/**
 * A text that a language model reads and writes, token by token. Calls take turns with those on its program, which has
 * one session at a time.
 */
public final class Session implements AutoCloseable {
  private final Program program;
  private long handle;

  /** {@link #Session(Program, String)} with the method "forward", or "text_decoder". */
  public Session(Program program) {
    this(program, null);
  }

  /**
   * Begins a text.
   *
   * @param method takes tokens and their position and gives logits, as export_llm and optimum-executorch write it
   * @throws SlipwayException the method is not ready or reads no tokens, or the program has a session that was not
   *     closed
   */
  public Session(Program program, String method) {
    this.program = program;
    synchronized (program) {
      handle = Native.createSession(program.handle(), Native.utf8(method));
    }
  }

  /** The native handle. Hold the program's lock while it is used. */
  private long handle() {
    program.requireOpen();
    if (handle == 0) {
      throw new IllegalStateException("the session was closed");
    }
    return handle;
  }

  /**
   * Lets the model read tokens; {@link #logits} are then those of the token that follows.
   *
   * @throws SlipwayException there is none, one is not in the vocabulary, or not all fit into the context: nothing is
   *     read then; or the execution failed
   */
  public void feed(long... ids) {
    synchronized (program) {
      Native.feed(handle(), ids);
    }
  }

  /**
   * Lets the model read embeddings in the place of tokens.
   *
   * @param rows {@link #width} numbers of each
   * @throws SlipwayException as {@link #feed}; or the model reads tokens alone
   */
  public void feedEmbeddings(float... rows) {
    synchronized (program) {
      int width = Math.max(1, width());
      if (rows.length % width != 0) {
        throw new IllegalArgumentException(rows.length + " numbers are not rows of " + width);
      }
      Native.feedEmbeddings(handle(), rows, rows.length / width);
    }
  }

  /** The next token's scores; empty before the first {@link #feed}. */
  public float[] logits() {
    synchronized (program) {
      return Native.logits(handle());
    }
  }

  /**
   * Chooses how {@link #sample} chooses, from now on.
   *
   * @param temperature 0: the likeliest token, always
   * @param topK of the likeliest tokens only so many; 0: all
   * @param topP only the likeliest tokens whose probabilities together reach it; 1: all
   * @param seed the same one gives the same text
   * @throws SlipwayException a number is out of its range
   */
  public void setSampling(double temperature, int topK, double topP, long seed) {
    synchronized (program) {
      Native.setSampling(handle(), temperature, Math.max(0, topK), topP, seed);
    }
  }

  /**
   * Chooses the next token. To go on, feed it.
   *
   * @throws SlipwayException nothing was read, or the model's logits are not numbers
   */
  public long sample() {
    synchronized (program) {
      return Native.sample(handle());
    }
  }

  /** The tokens that end a text, as the program names them. */
  public long[] stops() {
    synchronized (program) {
      return Native.stops(handle());
    }
  }

  /** How many tokens were read. */
  public long position() {
    return number(0);
  }

  /** How many tokens a text has at most; 0: the program does not say. */
  public long context() {
    return number(1);
  }

  /** The numbers of an embedding; 0 when the model reads tokens alone. */
  public int width() {
    return (int) number(2);
  }

  private long number(int index) {
    synchronized (program) {
      return Native.sessionNumber(handle(), index);
    }
  }

  /**
   * Forgets what was read after the first tokens, so many.
   *
   * @throws SlipwayException fewer were read
   */
  public void truncate(long position) {
    synchronized (program) {
      Native.truncate(handle(), position);
    }
  }

  /** Begins another text. */
  public void reset() {
    truncate(0);
  }

  /**
   * Writes the text to a file: what the model remembers, the position and the logits.
   *
   * @throws SlipwayException it cannot be written
   */
  public void save(String path) {
    synchronized (program) {
      Native.saveText(handle(), Native.utf8(path));
    }
  }

  /** What {@link #save} writes. */
  public byte[] toBytes() {
    synchronized (program) {
      return Native.saveText(handle(), null);
    }
  }

  /**
   * Goes on with a text that was saved by the same method of the same program. The session stays as it is after a
   * failure.
   *
   * @throws SlipwayException the file cannot be read, is damaged or another program's
   */
  public void restore(String path) {
    synchronized (program) {
      Native.restoreText(handle(), Native.utf8(path), null);
    }
  }

  /** The same from memory. */
  public void restore(byte[] saved) {
    synchronized (program) {
      Native.restoreText(handle(), null, saved);
    }
  }

  /** Ends the session, so that the program may have another one. */
  @Override
  public void close() {
    synchronized (program) {
      if (handle != 0 && program.isOpen()) {
        Native.freeSession(handle);
      }
      handle = 0;
    }
  }
}
