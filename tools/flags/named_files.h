// Values of graph inputs that come from files: NAME=FILE.
#ifndef WEFT_TOOLS_FLAGS_NAMED_FILES_H_
#define WEFT_TOOLS_FLAGS_NAMED_FILES_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "platform/file_system.h"
#include "tensor/value.h"

namespace weft {

// One NAME=FILE of a flag.
struct NamedFile {
  std::string name;
  std::string path;
};

// "x=a.npy,y=b.npy" and the like, any number; a comma begins a new pair only where NAME= follows.
// `flag` is for messages. InvalidArgument for an entry without "=" or name, and for a name twice.
absl::StatusOr<std::vector<NamedFile>> ParseNamedFiles(const std::vector<std::string>& texts,
                                                       const std::string& flag);

// Whether an entry is the name of an .npz file alone, which may hold arrays for several inputs.
bool IsArchiveOfInputs(const std::string& text);
// The entries that it stands for, FILE.npz:NAME for each input of which it has the array; `unused`
// gets the names of the others. What NpzFile says of the file.
absl::StatusOr<std::vector<NamedFile>> NamedFilesOf(FileSystem& files, const std::string& path,
                                                    const Graph& graph,
                                                    std::vector<std::string>& unused);

// How a file becomes the value of an input.
struct ReadInputOptions {
  int64_t samples = 0;      // take the first ones only; 0 = all
  bool scale_bytes = true;  // unsigned bytes become float32(byte) / 255 where a float is wanted
};

// Reads a value for `input`: .pb (a TensorProto, SequenceProto or OptionalProto, taken as it is),
// else .npy, idx, gzipped idx or an array of an .npz file (FILE.npz:ARRAY, or FILE.npz with an
// array of the input's name or one alone), whose first axis is the sample: reshaped to the input
// when the elements of a sample agree, and converted to its type (floating to floating, integer to
// integer). Errors name file, input and both types.
absl::StatusOr<Value> ReadInput(FileSystem& files, const NamedFile& file, const ValueDef& input,
                                const ReadInputOptions& options);

// The shapes of the tensors among `inputs` that the graph declares otherwise: for
// ImportOptions::input_shapes, since a model often runs at another size than it was exported with.
std::map<std::string, SymbolicShape> ShapesOtherThanDeclared(
    const Graph& graph, const std::map<std::string, Value>& inputs);

}  // namespace weft

#endif  // WEFT_TOOLS_FLAGS_NAMED_FILES_H_
