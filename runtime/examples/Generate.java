import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.stream.LongStream;
import org.slipway.Program;
import org.slipway.Session;
import org.slipway.SlipwayException;

/** Goes on with a text: Generate model.pte ids.txt 32. Numbers of tokens in and out, each as it comes. */
public final class Generate {
  private Generate() {}

  /** Exits with the code of a SlipwayException. */
  public static void main(String[] args) throws IOException {
    String text = new String(Files.readAllBytes(Paths.get(args[1])), StandardCharsets.US_ASCII);
    long[] ids = Arrays.stream(text.trim().split("\\s+")).mapToLong(Long::parseLong).toArray();
    try (Program program = Program.load(args[0]);
        Session session = new Session(program)) {
      session.setSampling(0, 0, 1, 0); // 0.7, 40, 0.95, 1: another text for each seed
      for (int left = Integer.parseInt(args[2]); left > 0; left--) {
        session.feed(ids);
        long id = session.sample();
        ids = new long[] {id};
        System.out.println(id);
        boolean stopped = LongStream.of(session.stops()).anyMatch(stop -> stop == id);
        if (stopped || session.position() == session.context()) {
          break;
        }
      }
    } catch (SlipwayException error) {
      System.err.println(error.getMessage() + "\n" + error.fix());
      System.exit(error.code().number);
    }
  }
}
