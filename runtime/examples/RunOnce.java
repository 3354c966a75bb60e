import java.io.FileOutputStream;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.channels.FileChannel;
import org.slipway.Program;
import org.slipway.SlipwayException;
import org.slipway.Tensor;
import org.slipway.TensorSpec;

/** Runs a model once: RunOnce model.pte input.bin output.bin. The files hold a tensor's elements, nothing else. */
public final class RunOnce {
  private RunOnce() {}

  /** Exits with the code of a SlipwayException. */
  public static void main(String[] args) throws IOException {
    try (Program program = Program.load(args[0])) {
      TensorSpec spec = program.method("forward").inputs().get(0);
      Tensor input = Tensor.allocate(spec.dtype(), spec.shape()); // read where it is
      try (FileChannel file = new RandomAccessFile(args[1], "r").getChannel()) {
        if (file.read(input.buffer(), 0) != input.buffer().remaining()) {
          throw new IOException(args[1] + " is too short");
        }
      }
      Tensor output = program.forward(input)[0]; // valid until the next call, and until the program is closed
      try (FileOutputStream file = new FileOutputStream(args[2])) {
        file.getChannel().write(output.buffer());
      }
    } catch (SlipwayException error) {
      System.err.println(error.getMessage() + "\n" + error.fix());
      System.exit(error.code().number);
    }
  }
}
