#include "tools/bench/lenet.h"

#include <utility>
#include <vector>

#include "onnx_import/importer.h"
#include "onnx_import/parameters/trainable.h"
#include "platform/file_system.h"
#include "platform/status_macros.h"
#include "tools/models/example_models.h"
#include "training/data/data_file.h"

namespace weft {
namespace {

constexpr int64_t kSamples = kLenetBatch * 20;

}  // namespace

absl::StatusOr<Graph> LenetModel() {
  WEFT_ASSIGN_OR_RETURN(std::string bytes, ExampleModelFile("lenet", 1));
  WEFT_ASSIGN_OR_RETURN(ModelFile file, ModelFile::Parse(std::move(bytes), "lenet"));
  WEFT_ASSIGN_OR_RETURN(ImportedModel model, ImportModel(file));
  WEFT_RETURN_IF_ERROR(MarkTrainable(model).status());
  return std::move(model.graph);
}

absl::StatusOr<std::shared_ptr<const DataSet>> MakeLenetData(const std::string& folder) {
  std::vector<uint8_t> pixels(kSamples * 28 * 28);
  std::vector<uint8_t> labels(kSamples);
  for (size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<uint8_t>(i * 2654435761u >> 24);
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<uint8_t>(i % 10);
  WEFT_ASSIGN_OR_RETURN(std::string x, ToNpy(Tensor::Of<uint8_t>(Shape{kSamples, 28, 28}, pixels)));
  WEFT_ASSIGN_OR_RETURN(std::string y, ToNpy(Tensor::Of<uint8_t>(Shape{kSamples}, labels)));
  WEFT_RETURN_IF_ERROR(RealFileSystem().WriteFileAtomically(folder + "/x.npy", x));
  WEFT_RETURN_IF_ERROR(RealFileSystem().WriteFileAtomically(folder + "/y.npy", y));
  DataSpec spec;
  spec.files = {{"x", folder + "/x.npy", 0}, {"labels", folder + "/y.npy", 0}};
  spec.batch = kLenetBatch;
  return DataSet::Open(RealFileSystem(), spec);
}

}  // namespace weft
