// Damaged models, and everything that can be done with a model's bytes.
#ifndef WEFT_ONNX_IMPORT_TESTING_MUTATE_H_
#define WEFT_ONNX_IMPORT_TESTING_MUTATE_H_

#include <random>
#include <string>
#include <string_view>

namespace google::protobuf {
class Message;
}

namespace weft::testing {

// One to four seeded changes of the bytes: truncation, flipped bits, bytes set to extremes, pieces
// removed, repeated or moved.
std::string MutateBytes(std::string bytes, std::mt19937& random);

// One to four seeded changes of the message that keep the encoding whole: numbers set to extremes,
// names emptied or swapped, elements removed or repeated, submessages cleared.
void MutateFields(google::protobuf::Message& message, std::mt19937& random);

// Loads, imports, marks, exports and re-reads whatever the bytes are, as far as each step succeeds.
// Never crashes. True when the model imports.
bool ExerciseModel(std::string_view bytes);

}  // namespace weft::testing

#endif  // WEFT_ONNX_IMPORT_TESTING_MUTATE_H_
