package org.slipway;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;

/** A method of a program. It ends with the program. */
public final class Method {
  private final Program program;
  private final long handle;
  private final String name;
  private final List<TensorSpec> inputs;
  private final List<TensorSpec> outputs;
  private final Tensor[] given; // read at each execution

  Method(Program program, long handle, String name) {
    this.program = program;
    this.handle = handle;
    this.name = name;
    inputs = specs(false);
    outputs = specs(true);
    given = new Tensor[inputs.size()];
  }

  private List<TensorSpec> specs(boolean ofOutputs) {
    List<TensorSpec> specs = new ArrayList<>();
    for (int i = 0; i < Native.count(handle, ofOutputs); i++) {
      specs.add(new TensorSpec(Native.spec(handle, ofOutputs, i)));
    }
    return Collections.unmodifiableList(specs);
  }

  /** The name that the program has for it. */
  public String name() {
    return name;
  }

  /** What the method declares of its inputs. */
  public List<TensorSpec> inputs() {
    return inputs;
  }

  /** What the method declares of its outputs. */
  public List<TensorSpec> outputs() {
    return outputs;
  }

  /**
   * Names the memory that each execution reads an input from, until another call names other memory. A method that
   * writes to its own input writes to this memory.
   *
   * @throws SlipwayException type or shape is wrong, or the method has fewer inputs
   */
  public void setInput(int index, Tensor input) {
    synchronized (program) {
      program.requireOpen();
      input.buffer(); // throws for an output of a program that was closed
      Native.setInput(handle, index, input.memory(), input.dtype().number, input.shape());
      given[index] = input;
    }
  }

  /** Whether the last execution copied this input. */
  public boolean inputCopied(int index) {
    synchronized (program) {
      program.requireOpen();
      return Native.inputCopied(handle, index);
    }
  }

  /**
   * Runs the method once, on the threads of its program's pool.
   *
   * @throws SlipwayException an input was not set, or the method failed
   */
  public void execute() {
    synchronized (program) {
      program.requireOpen();
      for (Tensor tensor : given) {
        if (tensor != null) {
          tensor.buffer(); // an input may be an output of another program, closed since
        }
      }
      Native.execute(handle);
    }
  }

  /**
   * An output of the last execution, where it is: valid until any method of the program runs again, and until the
   * program is closed.
   *
   * @throws SlipwayException the method has fewer outputs, or did not run yet
   */
  public Tensor output(int index) {
    synchronized (program) {
      program.requireOpen();
      long[] numbers = new long[Native.OUTPUT_NUMBERS];
      ByteBuffer memory = Native.output(handle, index, numbers);
      long[] shape = Arrays.copyOfRange(numbers, 2, 2 + (int) numbers[1]);
      return Tensor.output(memory, DType.of((int) numbers[0]), shape, program);
    }
  }

  /**
   * Sets all inputs, runs the method once, and gives all outputs.
   *
   * @throws SlipwayException as {@link #setInput}, {@link #execute} and {@link #output}
   */
  public Tensor[] forward(Tensor... tensors) {
    synchronized (program) {
      if (tensors.length != given.length) {
        throw new SlipwayException(
            SlipwayException.Code.INPUT,
            "Method " + name + " takes " + given.length + " inputs, " + tensors.length + " given.",
            "give one for each input");
      }
      for (int i = 0; i < tensors.length; i++) {
        setInput(i, tensors[i]);
      }
      execute();
      Tensor[] results = new Tensor[outputs.size()];
      for (int i = 0; i < results.length; i++) {
        results[i] = output(i);
      }
      return results;
    }
  }
}
