package org.slipway;

import java.nio.charset.StandardCharsets;

/** Why something failed: a class of errors, what happened, and what to do about it. */
public final class SlipwayException extends RuntimeException {
  /** A class of errors: its number is also an exit code of pte_runner. */
  public enum Code {
    /** A function was called in a wrong way. */
    USAGE(2),
    /** A file cannot be read, or is damaged. */
    FILE(3),
    /** The library has no kernel for an operator of the program. */
    MISSING_OPERATOR(4),
    /** The library lacks a backend of the program. */
    MISSING_BACKEND(5),
    /** An input has another type or shape than the method takes. */
    INPUT(6),
    /** The method failed while it ran. */
    EXECUTION(7),
    /** A file cannot be written. */
    OUTPUT(8),
    /** There is not enough memory. */
    MEMORY(9),
    /** A defect of the library. */
    DEFECT(10),
    /** The method took more rounds than were allowed. */
    LIMIT(11);

    /** The number in slipway.h. */
    public final int number;

    Code(int number) {
      this.number = number;
    }

    static Code of(int number) {
      for (Code code : values()) {
        if (code.number == number) {
          return code;
        }
      }
      return DEFECT;
    }
  }

  private static final long serialVersionUID = 1L;
  private final Code code;
  private final String fix;

  SlipwayException(Code code, String message, String fix) {
    super(message);
    this.code = code;
    this.fix = fix;
  }

  /** Called by the native side, whose texts are UTF-8. */
  @SuppressWarnings("unused")
  private SlipwayException(int code, byte[] message, byte[] fix) {
    this(Code.of(code), new String(message, StandardCharsets.UTF_8), new String(fix, StandardCharsets.UTF_8));
  }

  /** The class of the error. */
  public Code code() {
    return code;
  }

  /** What to do about it; may be empty. */
  public String fix() {
    return fix;
  }

  @Override
  public String toString() {
    return fix.isEmpty() ? getMessage() : getMessage() + " Try: " + fix;
  }
}
