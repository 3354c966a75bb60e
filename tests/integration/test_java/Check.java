import java.io.File;
import java.io.RandomAccessFile;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.util.Arrays;
import java.util.concurrent.atomic.AtomicInteger;
import org.slipway.DType;
import org.slipway.Method;
import org.slipway.Options;
import org.slipway.Pool;
import org.slipway.Program;
import org.slipway.Session;
import org.slipway.SlipwayException;
import org.slipway.SlipwayException.Code;
import org.slipway.Tensor;
import org.slipway.TensorSpec;

/** What the Java API promises: Check model.pte folder. Prints what failed, then how much. */
public final class Check {
  private static int failures;

  private Check() {}

  private interface Action {
    void run() throws Exception;
  }

  private static void check(boolean holds, String what) {
    if (!holds) {
      failures++;
      System.out.println("failed: " + what);
    }
  }

  /** The action throws a failure of this type, or an exception of ours with this code; its text has these words. */
  private static void fails(Object kind, String words, Action action) {
    try {
      action.run();
      check(false, "nothing was thrown, not " + words);
    } catch (Throwable thrown) {
      boolean ours = thrown instanceof SlipwayException && ((SlipwayException) thrown).code() == kind;
      boolean right = ours || (kind instanceof Class && ((Class<?>) kind).isInstance(thrown));
      check(right && thrown.toString().contains(words), thrown + " is not " + kind + ": " + words);
    }
  }

  private static float[] numbers(long[] shape) {
    int count = 1;
    for (long size : shape) {
      count *= (int) size;
    }
    float[] numbers = new float[count];
    for (int i = 0; i < count; i++) {
      numbers[i] = (float) Math.sin(i);
    }
    return numbers;
  }

  private static int descriptor(RandomAccessFile file) throws ReflectiveOperationException, java.io.IOException {
    Field number = java.io.FileDescriptor.class.getDeclaredField("fd");
    number.setAccessible(true);
    return number.getInt(file.getFD());
  }

  /** The likeliest ones after these. */
  private static long[] after(Session session, long[] ids, int count) {
    long[] found = new long[count];
    for (int i = 0; i < count; i++) {
      session.feed(i == 0 ? ids : new long[] {found[i - 1]});
      found[i] = session.sample();
    }
    return found;
  }

  private static void sessions(String folder, String none) {
    long[] prompt = {1, 15, 27};
    Program program = Program.load(folder + "/speaker.pte");
    Session session = new Session(program);
    check(session.context() == 40 && session.width() == 0 && session.logits().length == 0, "a new session");
    check(Arrays.equals(session.stops(), new long[] {63, 62}), "stops");
    long[] text = after(session, prompt, 12);
    check(session.position() == 14 && session.logits().length == 64, "position and logits");
    session.truncate(3);
    check(after(session, new long[] {text[0]}, 1)[0] == text[1], "after going back");
    fails(Code.USAGE, "cannot go back to 5", () -> session.truncate(5));
    fails(Code.INPUT, "Token 64 is outside", () -> session.feed(64));
    fails(Code.INPUT, "no token", () -> session.feed());
    fails(Code.INPUT, "A text of 41", () -> session.feed(new long[37]));
    fails(Code.USAGE, "no embeddings", () -> session.feedEmbeddings(1));
    fails(Code.USAGE, "Sampling needs", () -> session.setSampling(-1, 0, 1, 0));
    fails(Code.USAGE, "already", () -> new Session(program));
    String file = folder + "/text.saved";
    session.save(file);
    byte[] saved = session.toBytes();
    try (Program other = Program.load(folder + "/other.pte");
        Session stranger = new Session(other);
        Program twin = Program.load(folder + "/speaker.pte");
        Session second = new Session(twin)) {
      fails(Code.INPUT, "another program", () -> stranger.restore(file));
      fails(Code.FILE, "damaged", () -> second.restore(Arrays.copyOf(saved, saved.length - 1)));
      fails(Code.FILE, "none.saved", () -> second.restore("none.saved"));
      second.restore(file);
      check(second.position() == 4 && second.sample() == text[1], "a text from a file");
      second.reset();
      second.restore(saved);
      check(after(second, new long[] {text[1]}, 1)[0] == text[2], "a text from memory");
    }
    session.close();
    session.close();
    fails(IllegalStateException.class, "session was closed", session::sample);
    fails(Code.USAGE, "not ready", () -> new Session(program, "back"));
    Session last = new Session(program, "forward");
    check(Arrays.equals(after(last, prompt, 12), text), "the next session");
    program.close();
    fails(IllegalStateException.class, "program was closed", last::position);
    last.close();
    try (Program several = Program.load(folder + "/several.pte");
        Session session2 = new Session(several)) {
      Tensor ids = Tensor.allocate(DType.INT64, 1, 3);
      ids.asLongBuffer().put(prompt);
      float[] rows = several.method("token_embedding").forward(ids)[0].toFloatArray();
      session2.feedEmbeddings(rows);
      check(session2.position() == 3 && session2.sample() == text[0], "embeddings");
      fails(IllegalArgumentException.class, "rows of 32", () -> session2.feedEmbeddings(1, 2));
    }
    try (Program image = Program.load(none)) {
      fails(Code.USAGE, "does not read tokens", () -> new Session(image));
    }
  }

  public static void main(String[] args) throws Exception {
    String path = args[0];
    sessions(args[1], path);
    Program program = Program.load(path);
    Method forward = program.method("forward");
    long[] shape = forward.inputs().get(0).shape();
    float[] elements = numbers(shape);
    Tensor input = Tensor.of(elements, shape);
    float[] expected = program.forward(input)[0].toFloatArray();
    check(expected.length > 0 && !Arrays.equals(expected, new float[expected.length]), "the output is all zeros");
    check(forward.inputs().get(0).kind() == TensorSpec.Kind.TENSOR, "kind");
    check(forward.outputs().get(0).dtype() == DType.FLOAT32, "type of the output");
    check(program.methods().size() == 1 && Program.version().equals("0.1.0"), "methods and version");

    // Inputs are read where they are; the memory may change between executions.
    check(!forward.inputCopied(0), "the input was copied");
    input.asFloatBuffer().put(0, elements[0] + 1);
    forward.execute();
    check(!Arrays.equals(forward.output(0).toFloatArray(), expected), "a changed input was not read");
    ByteBuffer large = ByteBuffer.allocateDirect(1 << 16).order(ByteOrder.nativeOrder());
    large.position(64).limit(64 + 4 * elements.length);
    Tensor part = Tensor.of(large, DType.FLOAT32, shape);
    part.asFloatBuffer().put(elements);
    check(Arrays.equals(program.forward(part)[0].toFloatArray(), expected), "a part of a buffer");
    check(!forward.inputCopied(0), "a part of a buffer was copied");

    // From memory, from a mapping, and from a part of a file.
    try (RandomAccessFile file = new RandomAccessFile(path, "r")) {
      MappedByteBuffer mapped = file.getChannel().map(FileChannel.MapMode.READ_ONLY, 0, file.length());
      ByteBuffer odd = ByteBuffer.allocateDirect((int) file.length() + 3);
      odd.position(3);
      odd.put(mapped.duplicate()).position(3);
      File joined = File.createTempFile("part", ".bin");
      try (RandomAccessFile out = new RandomAccessFile(joined, "rw");
          Program first = Program.load(mapped, new Options());
          Program second = Program.load(odd, new Options())) {
        out.setLength(4096);
        out.getChannel().write(mapped.duplicate(), 4096);
        out.getChannel().write(ByteBuffer.allocate(10), out.length());
        try (Program third = Program.load(descriptor(out), 4096, file.length(), new Options())) {
          for (Program other : new Program[] {first, second, third}) {
            check(Arrays.equals(other.forward(Tensor.of(elements, shape))[0].toFloatArray(), expected), "sources");
          }
        }
      } finally {
        check(joined.delete(), "a file is in use");
      }
    }

    // Packed weights, in a file whose name is no ASCII and has a letter beyond 16 bits.
    File cache = new File(args[1], "Gewichte-\u00e4\u20ac-\ud83d\ude00");
    try (Program packing = Program.load(path, new Options().weightsCache(cache.getPath()).method("forward"))) {
      packing.keepWeights();
    }
    check(cache.isFile(), "no file of packed weights");
    try (Program again = Program.load(path, new Options().weightsCache(cache.getPath()))) {
      check(again.weightsFound() > 0, "packed weights were not found");
      check(Arrays.equals(again.forward(Tensor.of(elements, shape))[0].toFloatArray(), expected), "packed weights");
    }

    // Errors.
    fails(Code.FILE, "none-\u00e4.pte", () -> Program.load("none-\u00e4.pte"));
    fails(Code.USAGE, "has a zero", () -> Program.load(path + "\0"));
    fails(Code.USAGE, "needs a path", () -> Program.load((String) null));
    fails(Code.USAGE, "Method back is not ready", () -> program.method("back"));
    fails(Code.USAGE, "back", () -> Program.load(path, new Options().method("back")));
    fails(Code.INPUT, "takes 1 inputs, 2 given", () -> program.forward(input, input));
    fails(Code.INPUT, "", () -> program.forward(Tensor.allocate(DType.INT8, shape)));
    fails(Code.INPUT, "", () -> program.forward(Tensor.allocate(DType.FLOAT32, 1, 1, 1)));
    fails(Code.INPUT, "", () -> program.forward(Tensor.allocate(DType.FLOAT32, new long[17])));
    fails(Code.INPUT, "is None; the method takes float32", () -> program.forward(Tensor.none()));
    fails(Code.USAGE, "", () -> forward.setInput(-1, input));
    fails(Code.USAGE, "", () -> forward.output(1));
    fails(Code.USAGE, "named no file", program::keepWeights);
    ByteBuffer damaged = ByteBuffer.allocateDirect(4096);
    fails(Code.FILE, "", () -> Program.load(damaged, new Options()));
    fails(IllegalArgumentException.class, "direct", () -> Program.load(ByteBuffer.allocate(9), new Options()));
    fails(IllegalArgumentException.class, "direct", () -> Tensor.of(ByteBuffer.allocate(4), DType.INT8, 4));
    ByteOrder other = ByteOrder.nativeOrder() == ByteOrder.BIG_ENDIAN ? ByteOrder.LITTLE_ENDIAN : ByteOrder.BIG_ENDIAN;
    ByteBuffer swapped = ByteBuffer.allocateDirect(4).order(other);
    fails(IllegalArgumentException.class, "order", () -> Tensor.of(swapped, DType.FLOAT32, 1));
    check(Tensor.of(swapped, DType.INT8, 4).numel() == 4, "bytes have no order");
    fails(Code.USAGE, "has a zero", () -> Program.load(path, new Options().method("forward\0b")));
    fails(IllegalArgumentException.class, "do not fill", () -> Tensor.of(new float[3], 2, 2));
    fails(IllegalArgumentException.class, "negative", () -> Tensor.allocate(DType.INT8, -1));
    fails(ArithmeticException.class, "overflow", () -> Tensor.allocate(DType.INT8, 1L << 40, 1L << 40));
    fails(IllegalStateException.class, "not of INT64", input::asLongBuffer);

    // Two programs share a pool, each in a thread of its own; one is closed and loaded again all the time.
    AtomicInteger wrong = new AtomicInteger();
    try (Pool pool = new Pool(2)) {
      check(pool.threads() == 2, "threads");
      Thread[] threads = new Thread[2];
      for (int i = 0; i < threads.length; i++) {
        threads[i] =
            new Thread(
                () -> {
                  for (int round = 0; round < 20; round++) {
                    try (Program own = Program.load(path, new Options().pool(pool))) {
                      float[] found = own.forward(Tensor.of(elements, shape))[0].toFloatArray();
                      wrong.addAndGet(Arrays.equals(found, expected) ? 0 : 1);
                    } catch (RuntimeException thrown) {
                      wrong.incrementAndGet();
                    }
                  }
                });
        threads[i].start();
      }
      // Two threads and one program: they take turns.
      for (int round = 0; round < 20; round++) {
        wrong.addAndGet(Arrays.equals(program.forward(part)[0].copy().toFloatArray(), expected) ? 0 : 1);
      }
      for (Thread thread : threads) {
        thread.join();
      }
    }
    check(wrong.get() == 0, wrong + " rounds in threads");

    // What was closed is an error, never a crash.
    Pool closed = new Pool(1);
    closed.close();
    closed.close();
    fails(IllegalStateException.class, "closed", closed::threads);
    fails(IllegalStateException.class, "closed", () -> Program.load(path, new Options().pool(closed)));
    Tensor output = program.forward(input)[0];
    Tensor kept = output.copy();
    FloatBuffer view = kept.asFloatBuffer();
    program.close();
    program.close();
    fails(IllegalStateException.class, "closed", output::toFloatArray);
    fails(IllegalStateException.class, "closed", () -> program.forward(input));
    fails(IllegalStateException.class, "closed", forward::execute);
    try (Program next = Program.load(path)) {
      fails(IllegalStateException.class, "closed", () -> next.method("forward").setInput(0, output));
    }
    check(view.get(0) == kept.toFloatArray()[0], "a copy");
    System.out.println(failures + " failures");
  }
}
