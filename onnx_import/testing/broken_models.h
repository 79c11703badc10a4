// Models that are broken in every way we know, made here byte by byte: for the tests of what is
// said about them, and as seeds of fuzzing.
#ifndef WEFT_ONNX_IMPORT_TESTING_BROKEN_MODELS_H_
#define WEFT_ONNX_IMPORT_TESTING_BROKEN_MODELS_H_

#include <string>
#include <vector>

#include "onnx_import/codec/wire.pb.h"

namespace weft::testing {

// Who finds out.
enum class FoundBy {
  kImport,  // all: the model cannot be read
  kCheck,   // it can be shown, and does not run: `check` says so before `run` does
  kRun,     // the data decide
  kMemory,  // the data decide how much it takes, which is more than this machine has
};

struct BrokenModel {
  // A file beside the model; one that is a link has its target instead of bytes.
  struct File {
    std::string name;
    std::string bytes;
    std::string link_target;
  };

  std::string name;   // letters and digits
  std::string bytes;  // of the ONNX file
  FoundBy found_by = FoundBy::kImport;
  std::vector<std::string> parts;  // of the message: what, where, which
  std::vector<File> files;
};

// All of them, names unique. The models that run to their fault take one input, x: float[2,4].
std::vector<BrokenModel> BrokenModels();

// The parts that BrokenModels is made of.
void AddBrokenEncodings(std::vector<BrokenModel>& models);
void AddBrokenGraphs(std::vector<BrokenModel>& models);
void AddBrokenFunctions(std::vector<BrokenModel>& models);
void AddBrokenNodes(std::vector<BrokenModel>& models);
void AddBrokenSizes(std::vector<BrokenModel>& models);
void AddBrokenPayloads(std::vector<BrokenModel>& models);
void AddBrokenExternalData(std::vector<BrokenModel>& models);

// A model of operator set 17 from ONNX's text, its nodes named node0, node1, ...:
//   agraph (float[N,4] x) => (float[N,4] y) { y = Relu(x) }
onnx::ModelProto NamedModel(const std::string& body, int opset = 17);
// y = x + w, with this tensor, which gets the name w.
onnx::ModelProto ModelWithTensor(onnx::TensorProto tensor);

}  // namespace weft::testing

#endif  // WEFT_ONNX_IMPORT_TESTING_BROKEN_MODELS_H_
