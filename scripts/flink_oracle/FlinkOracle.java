import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.Period;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.catalog.DataTypeFactory;
import org.apache.flink.table.functions.ScalarFunction;
import org.apache.flink.table.types.inference.InputTypeStrategies;
import org.apache.flink.table.types.inference.TypeInference;
import org.apache.flink.table.types.inference.TypeStrategies;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

/**
 * Answers what Flink makes of SQL expressions. One line of JSON in: {"zone": ..., "expressions": [...], "doubtful":
 * [places of those that may fail]}, or {"functions": true} for the names of all functions; one line out: a list with {"type", "value"} or {"error", "message"} for each. Expressions are asked together; where that fails, in
 * halves, until the one that fails is alone. OPAQUE(x) is x, but no constant: planners cannot compute it beforehand.
 */
public final class FlinkOracle {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static TableEnvironment environment;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        environment = TableEnvironment.create(
                EnvironmentSettings.newInstance().inBatchMode().withConfiguration(cluster()).build());
        environment.createTemporarySystemFunction("OPAQUE", new Opaque());
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            Map<?, ?> question = JSON.readValue(line, Map.class);
            if (question.containsKey("functions")) {
                answers.println(JSON.writeValueAsString(builtIn()));
                continue;
            }
            environment.getConfig().set("table.local-time-zone", (String) question.get("zone"));
            answers.println(JSON.writeValueAsString(answered((List<?>) question.get("expressions"), (List<?>) question.get("doubtful"))));
        }
        System.exit(0);  // the cluster's threads would go on
    }

    /** The names of Flink's own functions, without ours. */
    private static List<String> builtIn() {
        List<String> names = new ArrayList<>(Arrays.asList(environment.listFunctions()));
        names.removeIf(name -> name.equalsIgnoreCase("opaque"));
        return names;
    }

    /** One small cluster for all questions, in this process; without it every query would start its own. */
    private static Configuration cluster() throws Exception {
        Configuration settings = new Configuration();
        settings.setString("rest.port", "0");
        settings.setString("rest.bind-port", "0");
        settings.setString("rest.address", "localhost");
        settings.setString("taskmanager.memory.network.min", "16m");
        settings.setString("taskmanager.memory.network.max", "16m");
        settings.setString("taskmanager.memory.managed.size", "64m");
        MiniCluster cluster = new MiniCluster(new MiniClusterConfiguration.Builder()
                .setConfiguration(settings).setNumTaskManagers(1).setNumSlotsPerTaskManager(1).build());
        cluster.start();
        Configuration client = new Configuration();
        client.setString("execution.target", "remote");
        client.setString("rest.address", "localhost");
        client.setString("rest.port", String.valueOf(cluster.getRestAddress().get().getPort()));
        client.setString("parallelism.default", "1");
        client.setString("restart-strategy.type", "none");
        return client;
    }

    private static List<Map<String, Object>> answered(List<?> expressions, List<?> doubtful) {
        List<Map<String, Object>> answers = new ArrayList<>();
        List<Integer> valid = new ArrayList<>();
        for (int i = 0; i < expressions.size(); i++) {
            try {
                String type = environment.sqlQuery("SELECT " + expressions.get(i))
                        .getResolvedSchema().getColumnDataTypes().get(0).getLogicalType().asSerializableString();
                answers.add(new LinkedHashMap<>(Map.of("type", type)));
                valid.add(i);
            } catch (Throwable problem) {
                answers.add(failure("plan", problem));
            }
        }
        executeAll(expressions, valid, doubtful, answers);
        return answers;
    }

    /** Those that are known to fail are asked alone. */
    private static void executeAll(List<?> expressions, List<Integer> valid, List<?> doubtful, List<Map<String, Object>> answers) {
        List<Integer> together = new ArrayList<>();
        for (int i : valid) {
            if (doubtful.contains(i)) {
                execute(expressions, List.of(i), answers);
            } else {
                together.add(i);
            }
        }
        execute(expressions, together, answers);
    }

    private static void execute(List<?> expressions, List<Integer> chosen, List<Map<String, Object>> answers) {
        if (chosen.isEmpty()) {
            return;
        }
        List<String> items = new ArrayList<>();
        for (int i : chosen) {
            items.add("(" + expressions.get(i) + ") AS c" + i);
        }
        try (CloseableIterator<Row> rows = environment.executeSql("SELECT " + String.join(", ", items)).collect()) {
            Row row = rows.next();
            for (int column = 0; column < chosen.size(); column++) {
                answers.get(chosen.get(column)).put("value", plain(row.getField(column)));
            }
        } catch (Throwable problem) {
            if (chosen.size() == 1) {
                Map<String, Object> failed = failure("run", problem);
                failed.put("type", answers.get(chosen.get(0)).get("type"));
                answers.set(chosen.get(0), failed);
                return;
            }
            int middle = chosen.size() / 2;
            execute(expressions, chosen.subList(0, middle), answers);
            execute(expressions, chosen.subList(middle, chosen.size()), answers);
        }
    }

    private static Map<String, Object> failure(String stage, Throwable problem) {
        Throwable cause = problem;
        while (cause.getCause() != null && cause.getCause() != cause) {
            cause = cause.getCause();
        }
        String text = String.valueOf(cause.getMessage()).split("\n")[0];
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("error", stage);
        answer.put("message", cause.getClass().getSimpleName() + ": " + text);
        return answer;
    }

    /** A value as JSON has it. Numbers with a point, times and bytes are text; the type says what is meant. */
    private static Object plain(Object value) {
        if (value instanceof Double || value instanceof Float || value instanceof LocalDate
                || value instanceof LocalTime || value instanceof LocalDateTime || value instanceof Instant) {
            return value.toString();
        } else if (value instanceof BigDecimal) {
            return ((BigDecimal) value).toPlainString();
        } else if (value instanceof Duration) {
            return ((Duration) value).toMillis();
        } else if (value instanceof Period) {
            return ((Period) value).toTotalMonths();
        } else if (value instanceof byte[]) {
            return HexFormat.of().formatHex((byte[]) value);
        } else if (value instanceof Object[]) {
            List<Object> items = new ArrayList<>();
            Arrays.stream((Object[]) value).forEach(item -> items.add(plain(item)));
            return items;
        } else if (value instanceof Map) {
            List<Object> pairs = new ArrayList<>();
            ((Map<?, ?>) value).forEach((key, item) -> pairs.add(Arrays.asList(plain(key), plain(item))));
            return pairs;
        } else if (value instanceof Row) {
            List<Object> items = new ArrayList<>();
            for (int i = 0; i < ((Row) value).getArity(); i++) {
                items.add(plain(((Row) value).getField(i)));
            }
            return items;
        } else if (value == null || value instanceof Boolean || value instanceof Number || value instanceof String) {
            return value;
        }
        return String.valueOf(value);
    }

    /** The value itself, but no constant. */
    public static final class Opaque extends ScalarFunction {
        public String eval(String value) { return value; }
        public Boolean eval(Boolean value) { return value; }
        public Byte eval(Byte value) { return value; }
        public Short eval(Short value) { return value; }
        public Integer eval(Integer value) { return value; }
        public Long eval(Long value) { return value; }
        public Float eval(Float value) { return value; }
        public Double eval(Double value) { return value; }
        public BigDecimal eval(BigDecimal value) { return value; }
        public LocalDate eval(LocalDate value) { return value; }
        public LocalTime eval(LocalTime value) { return value; }
        public LocalDateTime eval(LocalDateTime value) { return value; }
        public Instant eval(Instant value) { return value; }
        public Duration eval(Duration value) { return value; }
        public Period eval(Period value) { return value; }
        public byte[] eval(byte[] value) { return value; }

        @Override
        public boolean isDeterministic() {
            return false;
        }

        @Override
        public TypeInference getTypeInference(DataTypeFactory factory) {
            return TypeInference.newBuilder()
                    .inputTypeStrategy(InputTypeStrategies.sequence(InputTypeStrategies.ANY))
                    .outputTypeStrategy(TypeStrategies.argument(0))
                    .build();
        }
    }
}
