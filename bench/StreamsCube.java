// Counts page views per minute and cell in a Kafka Streams state store, exactly once. A record's key is its cell.
// Reads its parameters from standard input and prints one line of JSON, like the other engines' scripts.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.processor.TimestampExtractor;

public class StreamsCube {
    static final ObjectMapper JSON = new ObjectMapper();

    /** The event time in milliseconds. As in Truelog, the time when the device sent the event corrects its clock. */
    public static class EventTime implements TimestampExtractor {
        @Override
        public long extract(ConsumerRecord<Object, Object> record, long partitionTime) {
            JsonNode event = (JsonNode) record.value();
            long happened = Instant.parse(event.get("occurred_at").asText()).toEpochMilli();
            JsonNode sent = event.get("sent_at");
            boolean isSent = sent != null && !sent.isNull();
            return isSent ? happened + record.timestamp() - Instant.parse(sent.asText()).toEpochMilli() : happened;
        }
    }

    static JsonNode parse(String topic, byte[] value) {
        try {
            return JSON.readTree(value);
        } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }

    public static void main(String[] arguments) throws Exception {
        JsonNode given = JSON.readTree(System.in);
        LongAdder counted = new LongAdder();
        StreamsBuilder builder = new StreamsBuilder();
        var events = Serdes.serdeFrom((topic, event) -> event.toString().getBytes(), StreamsCube::parse);
        builder.stream("page_view", Consumed.with(Serdes.String(), events).withTimestampExtractor(new EventTime()))
            .peek((cell, event) -> counted.increment())
            .mapValues(event -> "")
            .groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(1), Duration.ofDays(1)))
            .count();
        Properties properties = new Properties();
        given.get("kafka").properties().forEach(each -> properties.put(each.getKey(), each.getValue().asText()));
        properties.putAll(Map.of(
            StreamsConfig.APPLICATION_ID_CONFIG, "bench-streams",
            StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2,
            StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "1000",
            StreamsConfig.STATE_DIR_CONFIG, given.get("state").asText(),
            StreamsConfig.NUM_STREAM_THREADS_CONFIG, given.get("cores").asText(),
            "auto.offset.reset", "earliest"));
        try (KafkaStreams streams = new KafkaStreams(builder.build(), properties)) {
            CountDownLatch failed = new CountDownLatch(1);
            streams.setUncaughtExceptionHandler(error -> {
                error.printStackTrace();
                failed.countDown();
                return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
            });
            streams.start();
            List<List<Object>> samples = sampled(counted, given.get("seconds").asDouble(), failed);
            System.out.println(JSON.writeValueAsString(Map.of("samples", samples)));
        }
    }

    /** The time and the events so far, four times a second from the first event on. */
    static List<List<Object>> sampled(LongAdder counted, double seconds, CountDownLatch failed) throws Exception {
        List<List<Object>> samples = new ArrayList<>();
        while (samples.isEmpty() || (double) samples.get(samples.size() - 1).get(0) - (double) samples.get(0).get(0) < seconds) {
            if (failed.await(250, TimeUnit.MILLISECONDS)) {
                System.exit(1);
            }
            if (counted.sum() > 0) {
                samples.add(List.of(System.currentTimeMillis() / 1000.0, counted.sum()));
            }
        }
        return samples;
    }
}
