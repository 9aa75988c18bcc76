// Runs SQL on Flink's own mini cluster and says what it cost: the processor time of this whole process.
//
// Reads lines from standard input: a JSON-free protocol of three kinds, each ended by a line with a single dot.
//   set KEY=VALUE         a setting of the table environment
//   do STATEMENT          runs it, waits for its end, answers "done WALL_SECONDS CPU_SECONDS"
//   collect FILE QUERY    writes the changes that a query gives to a file: a line each, its kind and its values by tabs
//   fail                  answers are "error MESSAGE" where a statement fails
import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.lang.management.ManagementFactory;
import java.time.LocalDateTime;
import java.time.format.DateTimeFormatter;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.table.functions.ScalarFunction;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

public class FlinkSql {
    /** How often a letter is in a text: the function of query 14. */
    public static class CountChar extends ScalarFunction {
        public long eval(String text, String letter) {
            long count = 0;
            if (text != null) {
                char looked = letter.charAt(0);
                for (int at = 0; at < text.length(); at++) {
                    if (text.charAt(at) == looked) {
                        count++;
                    }
                }
            }
            return count;
        }
    }

    private static final DateTimeFormatter TIME = DateTimeFormatter.ofPattern("yyyy-MM-dd HH:mm:ss.SSS");

    private static void collect(TableEnvironment tables, String file, String query) throws Exception {
        try (PrintWriter lines = new PrintWriter(file, "UTF-8");
                CloseableIterator<Row> rows = tables.executeSql(query).collect()) {
            while (rows.hasNext()) {
                Row row = rows.next();
                lines.print(row.getKind().shortString());
                for (int at = 0; at < row.getArity(); at++) {
                    Object value = row.getField(at);
                    lines.print('\t');
                    lines.print(value instanceof LocalDateTime ? TIME.format((LocalDateTime) value) : value);
                }
                lines.print('\n');
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        boolean batch = arguments.length > 0 && arguments[0].equals("batch");
        EnvironmentSettings settings =
                batch ? EnvironmentSettings.inBatchMode() : EnvironmentSettings.inStreamingMode();
        TableEnvironment tables = TableEnvironment.create(settings);
        tables.createTemporarySystemFunction("count_char", CountChar.class);
        OperatingSystemMXBean system =
                (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder text = new StringBuilder();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            if (!line.equals(".")) {
                text.append(line).append('\n');
                continue;
            }
            String asked = text.toString().trim();
            text.setLength(0);
            try {
                if (asked.startsWith("set ")) {
                    int equals = asked.indexOf('=');
                    tables.getConfig().set(asked.substring(4, equals), asked.substring(equals + 1));
                    System.out.println("done 0 0");
                } else if (asked.startsWith("collect ")) {
                    String[] words = asked.split(" ", 3);
                    collect(tables, words[1], words[2]);
                    System.out.println("done 0 0");
                } else {
                    long cpu = system.getProcessCpuTime();
                    long wall = System.nanoTime();
                    TableResult result = tables.executeSql(asked.substring(3));
                    if (result.getJobClient().isPresent()) {
                        result.await();
                    }
                    double took = (System.nanoTime() - wall) / 1e9;
                    System.out.println("done " + took + " " + (system.getProcessCpuTime() - cpu) / 1e9);
                }
            } catch (Throwable error) {
                Throwable cause = error;
                while (cause.getCause() != null) {
                    cause = cause.getCause();
                }
                System.out.println("error " + String.valueOf(cause).replace('\n', ' '));
            }
            System.out.flush();
        }
    }
}
