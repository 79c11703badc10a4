#include "tools/bench/wide_layer.h"

#include <utility>
#include <vector>

#include "graph/graph_builder.h"
#include "platform/file_system.h"
#include "platform/status_macros.h"
#include "training/data/data_file.h"

namespace weft {

absl::StatusOr<Graph> WideLayer(int64_t columns) {
  Graph graph;
  const auto floats = [](std::vector<Dim> dims) -> ValueType {
    return {ValueKind::kTensor, DType::kFloat32, SymbolicShape(std::move(dims))};
  };
  WEFT_ASSIGN_OR_RETURN(const Tensor zeros,
                        Tensor::Zeros(DType::kFloat32, {kWideFeatures, columns}));
  const ValueId x = graph.AddInput("x", floats({Dim::Symbol("N"), kWideFeatures}));
  const ValueId w = graph.AddVariable("w", floats({kWideFeatures, columns}), zeros, true);
  GraphBuilder builder(graph);
  const ValueId scores = builder.Op("MatMul", {x, w});
  builder.Name(scores, "scores");
  graph.AddOutput(scores);
  WEFT_RETURN_IF_ERROR(builder.status());
  return graph;
}

absl::StatusOr<std::shared_ptr<const DataSet>> MakeWideData(const std::string& folder,
                                                            int64_t columns) {
  constexpr int64_t kSamples = 64;
  std::vector<float> x(static_cast<size_t>(kSamples * kWideFeatures));
  for (size_t i = 0; i < x.size(); ++i) x[i] = 1e-3F * static_cast<float>(i % 1000);
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < kSamples; ++i) labels.push_back((i * 37) % columns);
  DataSpec spec;
  spec.batch = 16;
  const auto add = [&](const std::string& input, const Tensor& tensor) -> absl::Status {
    const std::string path = folder + "/wide-" + input + ".npy";
    WEFT_ASSIGN_OR_RETURN(const std::string bytes, ToNpy(tensor));
    spec.files.push_back({input, path, 0});
    return RealFileSystem().WriteFileAtomically(path, bytes);
  };
  WEFT_RETURN_IF_ERROR(add("x", Tensor::Of<float>({kSamples, kWideFeatures}, x)));
  WEFT_RETURN_IF_ERROR(add("labels", Tensor::Of<int64_t>({kSamples}, labels)));
  return DataSet::Open(RealFileSystem(), spec);
}

}  // namespace weft
