// Metrics of an evaluation: as nodes that add up over a step, and as numbers over all steps.
#ifndef WEFT_TRAINING_METRIC_H_
#define WEFT_TRAINING_METRIC_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/graph_builder.h"
#include "graph/op_schema.h"
#include "tensor/tensor.h"
#include "training/training_graph.h"

namespace weft {

// What a metric is made of: a mean over the samples (or positions, or elements) that count.
//   accuracy    the share of labels that are the class with the highest score (the first of
//               several); for bce_with_logits, of elements on the right side of zero
//   topK        the share of labels among the K classes with the highest scores (top5)
//   loss        the loss itself, label smoothing and class weights included
//   perplexity  e to the mean cross entropy, without smoothing and weights
//   mae, mse    mean absolute and squared error over all elements
//   r2          1 - sum of squared errors / sum of squares of the labels' distances from their
//               mean, over all elements
// Ignored labels count nowhere.
struct MetricMean {
  std::string name;  // of the reported mean: that of the metric, or "METRIC/PART"
  MeanParts parts;
};

// The names as people read them: "accuracy, loss, ...".
std::string MetricKinds();
// InvalidArgument naming the metrics and the nearest one.
absl::Status CheckMetric(const std::string& metric);

// Adds the nodes of a metric of one micro-batch and, unless the graph computes the loss, the input
// "labels" if it is not there.
absl::StatusOr<std::vector<MetricMean>> AddMetric(GraphBuilder& builder, const LossSpec& loss,
                                                  const std::string& metric);

// Adds up the reports of evaluation steps (MetricMean::name, and the same with kWeightSuffix).
// Thread- compatible.
class MetricTotals {
 public:
  void Add(const std::map<std::string, Tensor>& reports);
  // By metric, over all that was added; NaN where nothing counted.
  std::map<std::string, double> Values() const;

 private:
  struct Sum {
    double value = 0;
    double weight = 0;
    double mean() const { return value / weight; }
  };
  std::map<std::string, Sum> sums_;  // by MetricMean::name
};

}  // namespace weft

#endif  // WEFT_TRAINING_METRIC_H_
