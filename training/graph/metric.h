// Metrics of an evaluation: as nodes that add up over a step, and as numbers over all steps.
#ifndef WEFT_TRAINING_GRAPH_METRIC_H_
#define WEFT_TRAINING_GRAPH_METRIC_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/graph_builder.h"
#include "graph/op_schema.h"
#include "tensor/tensor.h"
#include "training/graph/training_spec.h"

namespace weft {

// What a metric is made of: a mean over the samples (or positions, or elements) that count.
//   accuracy    the share of labels that are the class with the highest score (the first of
//               several); for bce_with_logits, of elements on the right side of zero
//   topK        the share of labels among the K classes with the highest scores (top5)
//   loss        the loss itself, label smoothing and class weights included
//   perplexity  e to the mean cross entropy, without smoothing and weights
//   mae, mse    mean absolute and squared error over all elements
//   auc         the area under the ROC curve of two classes, exactly: the share of pairs of a
//   sample
//               of class 1 and one of class 0 in which the former has the higher score, ties half
//               (Hanley and McNeil, "The meaning and use of the area under a receiver operating
//               characteristic curve", Radiology 143, 1982). The score of two classes is that of
//               class 1 less that of class 0; one number per sample is the score itself, and labels
//               above 0.5 are class 1
//   r2          1 - sum of squared errors / sum of squares of the labels' distances from their
//               mean, over all elements
// Ignored labels count nowhere.
struct MetricMean {
  std::string name;  // of the reported mean: that of the metric, or "METRIC/PART"
  MeanParts parts;
  // It is no mean: the sum has a number for each sample of the batch, the weight says how many.
  bool is_list = false;
};

// The names as people read them: "accuracy, loss, ...".
std::string MetricKinds();
// InvalidArgument naming the metrics and the nearest one.
absl::Status CheckMetric(const std::string& metric);

// Adds the nodes of a metric of one micro-batch and, unless the graph computes the loss, the input
// "labels" if it is not there. `batch`: samples of the largest batch, which lists have room for.
absl::StatusOr<std::vector<MetricMean>> AddMetric(GraphBuilder& builder, const LossSpec& loss,
                                                  const std::string& metric, int64_t batch = 0);

// The area under the ROC curve (above); NaN without samples of both classes, or when a score is
// NaN. Labels are 1 or 0, what has another one does not count. O(n log n).
double AreaUnderCurve(const std::vector<double>& scores, const std::vector<double>& labels);

// Adds up the reports of evaluation steps (MetricMean::name, and the same with kWeightSuffix).
// Thread-compatible.
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
  std::map<std::string, Sum> sums_;                   // by MetricMean::name
  std::map<std::string, std::vector<double>> lists_;  // likewise
};

}  // namespace weft

#endif  // WEFT_TRAINING_GRAPH_METRIC_H_
