#include "host_memory_operators.hpp"
