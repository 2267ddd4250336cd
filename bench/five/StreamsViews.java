// The five views in Kafka Streams, exactly once, each with an output topic. A record of an output topic is a row of the
// view, and a record without a value deletes its row. Each method follows the definition of its view in
// `spark_apps/views/`. Reads its parameters from standard input and runs until it is ended.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.net.URI;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

public class StreamsViews {
    static final ObjectMapper JSON = new ObjectMapper();
    static final Serde<JsonNode> NODE = Serdes.serdeFrom((topic, node) -> bytes(node), StreamsViews::parse);
    static final Serde<String> TEXT = Serdes.String();
    static final Produced<String, JsonNode> ROWS = Produced.with(TEXT, NODE);
    static final String OUTPUT = "bench-streams-";
    static final char END = '\u0001'; // separates the parts of a key

    public static void main(String[] arguments) throws Exception {
        JsonNode given = JSON.readTree(System.in);
        StreamsBuilder builder = new StreamsBuilder();
        pageViews(builder);
        carts(builder);
        clickThrough(builder);
        homeTimeline(builder);
        Properties properties = new Properties();
        given.get("kafka").properties().forEach(each -> properties.put(each.getKey(), each.getValue().asText()));
        properties.putAll(Map.of(
            StreamsConfig.APPLICATION_ID_CONFIG, "bench-five",
            StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2,
            StreamsConfig.STATE_DIR_CONFIG, given.get("state").asText(),
            StreamsConfig.NUM_STREAM_THREADS_CONFIG, given.get("cores").asText(),
            "auto.offset.reset", "latest"));
        CountDownLatch failed = new CountDownLatch(1);
        try (KafkaStreams streams = new KafkaStreams(builder.build(), properties)) {
            streams.setUncaughtExceptionHandler(error -> {
                error.printStackTrace();
                failed.countDown();
                return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
            });
            streams.start();
            failed.await();
        }
        System.exit(1);
    }

    /** Page views per minute, host, page and browser, and requests per ten seconds and address. */
    static void pageViews(StreamsBuilder builder) {
        KStream<String, JsonNode> events = events(builder, "page_view");
        KStream<String, JsonNode> cells = events.map((key, event) -> KeyValue.pair(cell(event), event));
        rows(cells, "page_views", (row, event) -> row.put("views", row.path("views").asLong() + 1)
            .put("bytes", row.path("bytes").asLong() + event.path("bytes").asLong())).to(OUTPUT + "page_views", ROWS);
        KStream<String, JsonNode> panes = events.map((key, event) ->
            KeyValue.pair(event.get("at").asLong() / 10_000 * 10_000 + "" + END + text(event, "ip"), event));
        rows(panes, "request_rates", (row, event) -> row.put("requests", row.path("requests").asLong() + 1))
            .to(OUTPUT + "request_rates", ROWS);
    }

    static String cell(JsonNode event) {
        String host = "", page = "";
        try {
            URI url = URI.create(event.get("url").asText());
            host = url.getHost() == null ? "" : url.getHost().toLowerCase();
            page = url.getPath() == null ? "" : url.getPath();
        } catch (IllegalArgumentException invalid) {
            // As in Truelog, such a view counts in the cell without a host and a page.
        }
        return event.get("at").asLong() / 60_000 * 60_000 + "" + END + host + END + page + END + text(event, "browser");
    }

    interface Step {
        void apply(ObjectNode row, JsonNode event);
    }

    /** A row for each key, which each event of the key changes. */
    static KStream<String, JsonNode> rows(KStream<String, JsonNode> events, String view, Step step) {
        return events.groupByKey(Grouped.with(view, TEXT, NODE))
            .aggregate(JSON::createObjectNode, (key, event, row) -> changed(row, event, step), stored(view))
            .toStream();
    }

    /** A row for each cart: its products with their quantities, and its check-out. The state also has the ids of the
     * cart's events. */
    static void carts(StreamsBuilder builder) {
        Set<String> known = Set.of("added", "quantity_changed", "removed", "checked_out");
        KStream<String, JsonNode> events = events(builder, "cart_event")
            .filter((cart, event) -> known.contains(event.get("verb").asText()));
        rows(events, "cart", StreamsViews::foldCart)
            .mapValues(StreamsViews::shownCart).to(OUTPUT + "cart", ROWS);
    }

    static void foldCart(ObjectNode cart, JsonNode event) {
        String identity = event.get("event_id").asText(), verb = event.get("verb").asText();
        ObjectNode seen = cart.withObject("/seen"), products = cart.withObject("/products");
        if (seen.has(identity) || cart.has("checked_out_at")) {
            return;
        }
        seen.put(identity, true);
        if (verb.equals("checked_out")) {
            cart.put("checked_out_at", event.get("at").asLong());
            return;
        }
        String product = event.path("product").asText();
        JsonNode former = products.path(product);
        boolean adds = verb.equals("added");
        long quantity = verb.equals("removed") ? 0 : event.path("quantity").asLong();
        products.putObject(product)
            .put("quantity", quantity + (adds ? former.path("quantity").asLong() : 0))
            .put("changed_at", Math.max(event.get("at").asLong(), adds ? former.path("changed_at").asLong() : 0));
    }

    static JsonNode shownCart(JsonNode state) {
        ObjectNode cart = state.deepCopy();
        cart.remove("seen");
        cart.withObject("/products").removeIf(product -> product.get("quantity").asLong() == 0);
        return cart;
    }

    /** A search and its clicks, whichever comes first. */
    static void clickThrough(StreamsBuilder builder) {
        var searches = events(builder, "search").selectKey((key, event) -> event.get("event_id").asText())
            .groupByKey(Grouped.with("searches", TEXT, NODE));
        var clicks = events(builder, "click").selectKey((key, event) -> event.get("search_id").asText())
            .groupByKey(Grouped.with("clicks", TEXT, NODE));
        searches.<JsonNode>cogroup((key, event, row) -> changed(row, event, StreamsViews::ask))
            .cogroup(clicks, (key, event, row) -> changed(row, event, StreamsViews::click))
            .aggregate(JSON::createObjectNode, stored("click_through"))
            .toStream().to(OUTPUT + "click_through", ROWS);
    }

    static void ask(ObjectNode row, JsonNode search) {
        row.put("asked_at", search.get("at").asLong()).set("results", search.get("results"));
    }

    static void click(ObjectNode row, JsonNode click) {
        String each = click.get("at").asLong() + " " + click.get("url").asText();
        row.withObject("/clicked").put(each, true); // a copy of a click counts once
    }

    /** Tweets with their authors' followers. A table-table join of Kafka Streams has one row for each left row, so it
     * cannot express this join. A processor with two stores can. */
    static void homeTimeline(StreamsBuilder builder) {
        for (String store : List.of("follows", "tweets")) {
            builder.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(store), TEXT, NODE));
        }
        Repartitioned<String, JsonNode> byAuthor = Repartitioned.with(TEXT, NODE);
        KStream<String, JsonNode> follows = events(builder, "follow")
            .selectKey((key, event) -> event.get("followee_id").asText()).repartition(byAuthor.withName("followees"));
        KStream<String, JsonNode> tweets = events(builder, "tweet")
            .selectKey((key, event) -> event.get("author_id").asText()).repartition(byAuthor.withName("authors"));
        follows.merge(tweets).process(Timeline::new, "follows", "tweets").to(OUTPUT + "home_timeline", ROWS);
    }

    /** Keeps the last event of each follower and of each tweet of an author, and emits the rows that an event adds or
     * deletes. */
    static class Timeline extends ContextualProcessor<String, JsonNode, String, JsonNode> {
        private KeyValueStore<String, JsonNode> follows, tweets;

        @Override
        public void init(ProcessorContext<String, JsonNode> context) {
            super.init(context);
            follows = context.getStateStore("follows");
            tweets = context.getStateStore("tweets");
        }

        @Override
        public void process(Record<String, JsonNode> record) {
            JsonNode event = record.value();
            boolean isTweet = event.has("tweet_id");
            KeyValueStore<String, JsonNode> own = isTweet ? tweets : follows;
            String key = record.key() + END + event.get(isTweet ? "tweet_id" : "follower_id").asText();
            JsonNode former = own.get(key);
            if (former != null && former.get("at").asLong() > event.get("at").asLong()) {
                return; // a later event has come first
            }
            own.put(key, event);
            boolean isSame = former != null && exists(former) == exists(event);
            if (former != null && exists(former) && (isTweet || !isSame)) {
                emit(record, former, isTweet, null);
            }
            if (exists(event) && (isTweet || !isSame)) {
                emit(record, event, isTweet, JSON.createObjectNode().put("entries", 1));
            }
        }

        /** Emit this value for each row of a tweet, or of a follower. */
        private void emit(Record<String, JsonNode> record, JsonNode one, boolean isTweet, JsonNode value) {
            String author = record.key() + END;
            try (var others = (isTweet ? follows : tweets).prefixScan(author, TEXT.serializer())) {
                others.forEachRemaining(other -> {
                    if (exists(other.value)) {
                        JsonNode follow = isTweet ? other.value : one, tweet = isTweet ? one : other.value;
                        String reader = follow.get("follower_id").asText(), id = tweet.get("tweet_id").asText();
                        String row = reader + END + tweet.get("at").asLong() + END + id;
                        context().forward(record.withKey(row).withValue(value));
                    }
                });
            }
        }

        private static boolean exists(JsonNode event) {
            String verb = event.get("verb").asText();
            return verb.equals("followed") || verb.equals("posted");
        }
    }

    /** The events of a topic with the field `at`, their time in milliseconds. As in Truelog, the time when the device
     * sent the event corrects its clock. */
    static KStream<String, JsonNode> events(StreamsBuilder builder, String topic) {
        return builder.stream(topic, Consumed.with(TEXT, NODE)).processValues(Timed::new);
    }

    static class Timed extends ContextualFixedKeyProcessor<String, JsonNode, JsonNode> {
        @Override
        public void process(FixedKeyRecord<String, JsonNode> record) {
            ObjectNode event = (ObjectNode) record.value();
            long happened = milliseconds(event.get("occurred_at"));
            boolean isSent = event.hasNonNull("sent_at");
            event.put("at", isSent ? happened + record.timestamp() - milliseconds(event.get("sent_at")) : happened);
            context().forward(record.withValue(event));
        }

        static long milliseconds(JsonNode time) {
            return Instant.parse(time.asText()).toEpochMilli();
        }
    }

    static JsonNode changed(JsonNode row, JsonNode event, Step step) {
        ObjectNode next = row.deepCopy();
        step.apply(next, event);
        return next;
    }

    static Materialized<String, JsonNode, KeyValueStore<Bytes, byte[]>> stored(String view) {
        return Materialized.<String, JsonNode, KeyValueStore<Bytes, byte[]>>as(view)
            .withKeySerde(TEXT).withValueSerde(NODE);
    }

    static String text(JsonNode event, String field) {
        return event.hasNonNull(field) ? event.get(field).asText() : "";
    }

    static byte[] bytes(JsonNode node) {
        try {
            return node == null ? null : JSON.writeValueAsBytes(node);
        } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }

    static JsonNode parse(String topic, byte[] value) {
        try {
            return value == null ? null : JSON.readTree(value);
        } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }
}
