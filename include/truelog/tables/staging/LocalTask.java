package truelog;

import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.channels.FileChannel;
import java.nio.file.OpenOption;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowFileReader;
import org.apache.spark.Partition;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskContext$;
import org.apache.spark.TaskContextImpl;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.memory.TaskMemoryManager;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.expressions.PythonUDF;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.RDDScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.arrow.ArrowConverters$;
import org.apache.spark.sql.execution.python.MapInArrowExec;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils$;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.util.TaskCompletionListener;
import scala.jdk.javaapi.CollectionConverters;

/** A plan of one partition, and what a task of Spark does with a partition: `local_task.py` says why. */
public class LocalTask {
    // Spark numbers its tasks from 0 on, and -1 and -1024 mean other writers of blocks than tasks.
    private static final AtomicLong LAST = new AtomicLong(1L << 48);
    private static final long BATCH_ROWS = 10000L;
    private static final long BATCH_BYTES = 16L << 20;

    private final RDD rows;
    private final Partition partition;
    private final StructType schema;
    private final SQLConf conf;
    private final Properties properties = new Properties();

    /** The plan of a frame. A function of Python whose name is this prefix and a path is replaced: Java reads the file. */
    public LocalTask(Object frame, String prefix) {
        Dataset planned = (Dataset) frame;
        SparkSession session = (SparkSession) planned.sparkSession();
        scala.Option before = org.apache.spark.sql.SparkSession.getActiveSession();
        org.apache.spark.sql.SparkSession.setActiveSession(session);
        rows = reading(planned.queryExecution().executedPlan(), prefix, session.sparkContext()).execute();
        if (rows.partitions().length != 1) {
            throw new IllegalArgumentException("the plan has " + rows.partitions().length + " partitions, not one");
        }
        partition = rows.partitions()[0];
        schema = planned.schema();
        conf = session.sessionState().conf();
        // A task reads the session's settings from its properties, which are also sent to Python. Catalogs have secrets.
        Iterator settings = CollectionConverters.asJava(conf.getAllConfs()).entrySet().iterator();
        while (settings.hasNext()) {
            Map.Entry each = (Map.Entry) settings.next();
            String name = (String) each.getKey();
            if (name.startsWith("spark.sql.") && !name.startsWith("spark.sql.catalog.")) {
                properties.setProperty(name, (String) each.getValue());
            }
        }
        if (before.isDefined()) { // the thread also plans large batches, by another session
            org.apache.spark.sql.SparkSession.setActiveSession((org.apache.spark.sql.SparkSession) before.get());
        } else {
            org.apache.spark.sql.SparkSession.clearActiveSession();
        }
    }

    /** Executes the plan, and writes its rows to a file of Arrow streams, one after the other. */
    public void write(String file) throws Throwable {
        SparkEnv env = SparkEnv.get();
        long id = LAST.incrementAndGet();
        TaskMemoryManager memory = new TaskMemoryManager(env.memoryManager(), id);
        TaskContextImpl context = new TaskContextImpl(
            0, 0, 0, id, 0, 1, memory, properties, env.metricsSystem(), TaskMetrics.empty(), 1,
            new scala.collection.immutable.HashMap());
        env.blockManager().registerTask(id);
        TaskContext$.MODULE$.setTaskContext(context);
        try {
            writeRows(file, context);
            context.markTaskCompleted(scala.Option.empty());
        } catch (Throwable error) {
            context.markTaskFailed(error);
            context.markTaskCompleted(scala.Option.apply(error));
            throw error;
        } finally {
            memory.cleanUpAllAllocatedMemory();
            env.blockManager().releaseAllLocksForTask(id);
            TaskContext$.MODULE$.unset();
        }
    }

    private void writeRows(String file, TaskContext context) throws Throwable {
        OutputStream out = new FileOutputStream(file);
        try {
            scala.collection.Iterator found = rows.iterator(partition, context);
            if (found.hasNext()) {
                scala.collection.Iterator batches = ArrowConverters$.MODULE$.toBatchWithSchemaIterator(
                    found, schema, BATCH_ROWS, BATCH_BYTES, conf.sessionLocalTimeZone(), true, false);
                while (batches.hasNext()) {
                    out.write((byte[]) batches.next());
                }
            }
        } finally {
            out.close();
        }
    }

    private static SparkPlan reading(SparkPlan plan, String prefix, SparkContext spark) {
        if (plan instanceof MapInArrowExec && ((MapInArrowExec) plan).func() instanceof PythonUDF) {
            String name = ((PythonUDF) ((MapInArrowExec) plan).func()).name();
            if (name.startsWith(prefix)) {
                RDD file = new FileRows(spark, name.substring(prefix.length()));
                return new RDDScanExec(
                    ((MapInArrowExec) plan).output(), file, "file", plan.outputPartitioning(), noElements(),
                    scala.Option.empty());
            }
        }
        List children = new ArrayList();
        boolean changed = false;
        Iterator each = CollectionConverters.asJava(plan.children()).iterator();
        while (each.hasNext()) {
            SparkPlan child = (SparkPlan) each.next();
            SparkPlan other = reading(child, prefix, spark);
            changed = changed || other != child;
            children.add(other);
        }
        return changed ? (SparkPlan) plan.withNewChildren(CollectionConverters.asScala(children).toSeq()) : plan;
    }

    private static scala.collection.immutable.Seq noElements() {
        return CollectionConverters.asScala(new ArrayList()).toSeq();
    }

    /** The rows that an Arrow file has when they are read. */
    public static class FileRows extends RDD {
        private final String file;

        public FileRows(SparkContext spark, String file) {
            super(spark, noElements(), scala.reflect.ClassTag$.MODULE$.apply(Object.class));
            this.file = file;
        }

        public Partition[] getPartitions() {
            return new Partition[] {new Whole()};
        }

        public scala.collection.Iterator compute(Partition split, TaskContext context) {
            try {
                OpenFile opened = new OpenFile(file);
                context.addTaskCompletionListener((TaskCompletionListener) opened);
                return CollectionConverters.asScala((Iterator) opened);
            } catch (IOException error) {
                throw new java.io.UncheckedIOException(error);
            }
        }
    }

    /** The only partition of a file. */
    public static class Whole implements Partition {
        public int index() {
            return 0;
        }

        public boolean org$apache$spark$Partition$$super$equals(Object other) {
            return this == other;
        }
    }

    /** The rows of an open Arrow file. Each is valid until the next. */
    public static class OpenFile implements Iterator, TaskCompletionListener {
        private final BufferAllocator memory;
        private final ArrowFileReader reader;
        private final ColumnVector[] columns;
        private Iterator rows = Collections.emptyIterator();

        public OpenFile(String file) throws IOException {
            FileChannel channel = FileChannel.open(Paths.get(file, new String[0]), new OpenOption[0]);
            memory = ArrowUtils$.MODULE$.rootAllocator().newChildAllocator(file, 0L, Long.MAX_VALUE);
            reader = new ArrowFileReader(channel, memory);
            List vectors;
            try {
                vectors = reader.getVectorSchemaRoot().getFieldVectors();
            } catch (IOException error) { // no task knows the file yet
                onTaskCompletion(null);
                throw error;
            }
            columns = new ColumnVector[vectors.size()];
            for (int i = 0; i < columns.length; i++) {
                columns[i] = new ArrowColumnVector((FieldVector) vectors.get(i));
            }
        }

        public boolean hasNext() {
            try {
                while (!rows.hasNext() && reader.loadNextBatch()) {
                    rows = new ColumnarBatch(columns, reader.getVectorSchemaRoot().getRowCount()).rowIterator();
                }
                return rows.hasNext();
            } catch (IOException error) {
                throw new java.io.UncheckedIOException(error);
            }
        }

        public Object next() {
            return rows.next();
        }

        public void remove() {
            throw new UnsupportedOperationException();
        }

        public void onTaskCompletion(TaskContext context) {
            try {
                reader.close();
            } catch (IOException error) {
                throw new java.io.UncheckedIOException(error);
            } finally {
                memory.close();
            }
        }
    }
}
