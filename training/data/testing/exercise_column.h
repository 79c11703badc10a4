// Arbitrary bytes as a data file: what the fuzzer and the mutation test run.
#ifndef WEFT_TRAINING_DATA_TESTING_EXERCISE_COLUMN_H_
#define WEFT_TRAINING_DATA_TESTING_EXERCISE_COLUMN_H_

#include <string_view>

namespace weft::testing {

// The first byte says which format, which part, and whether labels are meant; the rest is the file.
// Opens it and reads the first and the last sample. Also takes all of it as a description of data.
void ExerciseColumn(std::string_view input);

}  // namespace weft::testing

#endif  // WEFT_TRAINING_DATA_TESTING_EXERCISE_COLUMN_H_
