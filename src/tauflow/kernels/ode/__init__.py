"""CT-RNN, ODE-RNN and neural ODE on a GPU: a flow with one product per evaluation of its field."""
