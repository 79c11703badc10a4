// BatchNormalization that an exporter has folded into convolutions: found, and put back.
#ifndef WEFT_ONNX_IMPORT_UNFOLDING_UNFOLD_NORMS_H_
#define WEFT_ONNX_IMPORT_UNFOLDING_UNFOLD_NORMS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "onnx_import/model_file.h"

namespace weft {

// What the names of the nodes that are put back end in, behind the convolution's name and "/".
inline constexpr char kUnfoldedNorm[] = "unfolded_norm";

// A convolution of the main graph.
struct FoldedNorm {
  int node = 0;             // its place
  std::string convolution;  // its name, or that of its output
  std::string output;       // the value that it makes: [N, channels, ...]
  int64_t channels = 0;
  int rank = 0;  // of the output
};

// The convolutions that have a normalization folded in, by the traces that exporters leave
// (README.md), in the file's order; with `patterns` ('*', '?') instead those of these names: of the
// node, its output, its weight or its module. InvalidArgument where there are none, where a pattern
// fits none, or where BatchNormalization follows one already; Unimplemented for a file that brings
// its own training, or of an operator set below 7.
absl::StatusOr<std::vector<FoldedNorm>> FindFoldedNorms(
    const ModelFile& file, const std::vector<std::string>& patterns = {});

// Of the elements of a value, by channel (axis 1), with the convolution's bias in them.
struct ChannelStatistics {
  std::vector<double> mean;
  std::vector<double> variance;  // of the population: the mean square of the distances
};

// The file with a BatchNormalization behind each convolution, in its form for inference, with
// epsilon 1e-5 and momentum 0.9. `statistics`: by FoldedNorm::output; a value without any gets mean
// 0 and variance 1. The function in inference stays the same, to rounding, whatever they are. A
// bias that nothing else reads goes. Large payloads stay in the file given (ApplyEdit).
// InvalidArgument for statistics that are not finite or have another number of channels; the errors
// of ApplyEdit.
absl::StatusOr<ModelFile> UnfoldNorms(ModelFile file, const std::vector<FoldedNorm>& norms,
                                      const std::map<std::string, ChannelStatistics>& statistics);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_UNFOLDING_UNFOLD_NORMS_H_
