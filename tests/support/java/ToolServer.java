import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools one after the other in one JVM, so that a test does not pay for a start of Java each time.
 * A line of JSON in ({"main", "args", "stdin"}), a line of JSON out ({"code", "out", "err"}).
 */
public class ToolServer {
    private static Integer firstExit;

    private static final class Exited extends Error {
        Exited(int code) {
            super("exit " + code, null, false, false);
        }
    }

    public static void main(String[] args) throws Exception {
        Exit.Procedure exit = (code, message) -> {
            // Some tools catch what is thrown here and exit once more, with another code: the first one counts.
            if (firstExit == null) {
                firstExit = code;
            }
            throw new Exited(code);
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        ObjectMapper json = new ObjectMapper();
        PrintStream realOut = System.out;
        PrintStream realErr = System.err;
        InputStream realIn = System.in;
        BufferedReader lines = new BufferedReader(new InputStreamReader(realIn, StandardCharsets.UTF_8));
        String line;
        while ((line = lines.readLine()) != null) {
            JsonNode request = json.readTree(line);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            System.setIn(new ByteArrayInputStream(request.path("stdin").asText("").getBytes(StandardCharsets.UTF_8)));
            int code = run(request.get("main").asText(), json.convertValue(request.get("args"), String[].class));
            System.out.flush();
            System.err.flush();
            System.setOut(realOut);
            System.setErr(realErr);
            System.setIn(realIn);
            ObjectNode response = json.createObjectNode();
            response.put("code", code);
            response.put("out", out.toString(StandardCharsets.UTF_8));
            response.put("err", err.toString(StandardCharsets.UTF_8));
            realOut.println(json.writeValueAsString(response));
            realOut.flush();
        }
    }

    private static int run(String main, String[] args) {
        firstExit = null;
        try {
            Class.forName(main).getMethod("main", String[].class).invoke(null, (Object) args);
            return firstExit == null ? 0 : firstExit;
        } catch (InvocationTargetException e) {
            if (firstExit != null) {
                return firstExit;
            }
            e.getCause().printStackTrace();
            return 1;
        } catch (ReflectiveOperationException e) {
            e.printStackTrace();
            return 1;
        }
    }
}
