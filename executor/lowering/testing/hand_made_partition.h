// Small partitions, node by node: what the tests of the lowering run.
#ifndef WEFT_EXECUTOR_LOWERING_TESTING_HAND_MADE_PARTITION_H_
#define WEFT_EXECUTOR_LOWERING_TESTING_HAND_MADE_PARTITION_H_

#include <cstdint>
#include <functional>
#include <string>

#include "graph/graph_builder.h"
#include "graph/partition.h"

namespace weft::testing {

ValueType FloatType(const Shape& shape);

using Build = std::function<void(GraphBuilder&)>;

// `micro_batches` of one sample [1,2] named "x"; sums and the end graph are added by the test.
Partition NewPartition(int micro_batches, const Build& build_micro);

// Input `name` [1,2] of the end graph: the sum over micro-batches [first, last) of `output`.
void AddSum(Partition& partition, const std::string& output, const std::string& name, int first,
            int last, bool ordered_tree = false);

// End graph: every sum times one, reported as "got_" + its name.
void ReportSums(Partition& partition);

ValueId Find(GraphBuilder& builder, const std::string& name);

// A Scale of the value `from`, whose output is `name`.
void Scaled(GraphBuilder& builder, const std::string& name, const std::string& from, float factor);

void AddSend(GraphBuilder& builder, const std::string& value, int64_t channel);

// From rank 0 to rank 1, of [1,2] per micro-batch.
Channel ChannelOf(int32_t id, const std::string& value);

}  // namespace weft::testing

#endif  // WEFT_EXECUTOR_LOWERING_TESTING_HAND_MADE_PARTITION_H_
